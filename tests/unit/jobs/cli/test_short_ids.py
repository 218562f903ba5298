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


def test_ids_are_shortened_to_the_minute_or_until_they_are_unique() -> None:
    assert list(map(ShortIds(IDS), IDS)) == [
        "20261121T1405", "20261121T140613", "20261121T140614Z-21", "20261121T140614Z-22", "20261122T0000",
    ]  # fmt: skip
    assert ShortIds(IDS[:1])(IDS[0]) == "20261121T1405"


@given(st.sets(st.from_regex(r"2026112[12]T14051[12]Z-[0-9a-b]{8}", fullmatch=True), min_size=1))
def test_each_short_id_is_the_prefix_of_one_id(ids: set[str]) -> None:
    short = ShortIds(ids)
    for backup_id in ids:
        assert [other_id for other_id in ids if other_id.startswith(short(backup_id))] == [backup_id]
