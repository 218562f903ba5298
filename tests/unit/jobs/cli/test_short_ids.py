from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakebackup_jobs.cli.output.short_ids import ShortIds

IDS = [
    "20261121T140512Z-8174d834",
    "20261121T140613Z-11111111",
    "20261121T140614Z-21111111",
    "20261121T140614Z-22111111",
    "20261122T000000Z-00000000",
]


def test_to_the_minute_or_as_long_as_it_must_be() -> None:
    assert list(map(ShortIds(IDS), IDS)) == [
        "20261121T1405", "20261121T140613", "20261121T140614Z-21", "20261121T140614Z-22", "20261122T0000",
    ]  # fmt: skip
    assert ShortIds(IDS[:1])(IDS[0]) == "20261121T1405"


@given(st.sets(st.from_regex(r"2026112[12]T14051[12]Z-[0-9a-b]{8}", fullmatch=True), min_size=1))
def test_each_is_the_beginning_of_one_alone(ids: set[str]) -> None:
    short = ShortIds(ids)
    for one in ids:
        assert [other for other in ids if other.startswith(short(one))] == [one]
