"""What a policy's keep rules keep: worked cases of other tools' documents, a model over random calendars.

Pure: the view obsolete_backups on DuckDB, over backups that are rows.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql.test_queries import on_duckdb

from lakebackup.sql_engine import relations_in, steps, to_duckdb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

QUESTION = "SELECT source, number FROM obsolete_backups WHERE status <> 'OBSOLETE'"
RULES = ("last", "hourly", "daily", "weekly", "monthly", "yearly")
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia")


def all_kept(sources: Sequence[tuple[Mapping[str, Any], Sequence[datetime]]]) -> list[set[int]]:
    """The numbers, from 1, of the fulls that stay of each source, given its policy and when they ended."""
    backups = [
        {
            "backup_id": f"{source}-{number}", "number": number, "source": str(source), "kind": "full",
            "end_ts": int(end.timestamp() * 1000),
        }
        for source, (_, ends) in enumerate(sources)
        for number, end in enumerate(ends, 1)
    ]  # fmt: skip
    policies = [{**rules, "source": str(source)} for source, (rules, _) in enumerate(sources)]
    kept_numbers: list[set[int]] = [set() for _ in sources]
    for row in answer(QUESTION, backups=backups, in_force=policies):
        kept_numbers[int(row["source"])].add(row["number"])
    return kept_numbers


def answer(question: str, **tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a SELECT over a catalog with these rows in its tables."""
    engine = on_duckdb({"given": tables, "when": {}}, {*relations_in(question), *steps(question)})
    return engine.run(to_duckdb(question), relations_in(question), {}).read_all().to_pylist()


def kept_ids(rules: Mapping[str, Any], ends: Sequence[datetime]) -> set[int]:
    """As `all_kept`, of one source."""
    return all_kept([(rules, ends)])[0]


def nights(first: date, last: date) -> list[datetime]:
    days = (last - first).days + 1
    return [
        datetime(first.year, first.month, first.day, 4, tzinfo=UTC) + timedelta(days=n) for n in range(days)
    ]


def dates_kept(rules: Mapping[str, Any], ends: Sequence[datetime]) -> list[str]:
    return [f"{ends[number - 1]:%m-%d}" for number in sorted(kept_ids(rules, ends))]


def test_the_example_of_borg() -> None:
    """Every night of 2015; 14 daily and 6 monthly. Borg's monthly rule does not count the months whose newest
    backup a daily rule keeps: its 6 are 8 here, with December and January."""
    ends = nights(date(2015, 1, 1), date(2016, 1, 1))
    months = ["06-30", "07-31", "08-31", "09-30", "10-31", "11-30"]
    days = [f"12-{day}" for day in range(19, 32)] + ["01-01"]
    assert dates_kept({"keep_daily": 14, "keep_monthly": 8}, ends) == [*months, *days]
    assert dates_kept({"keep_daily": 14, "keep_monthly": 8, "keep_yearly": 1}, ends) == [*months, *days]


def test_the_example_of_restic() -> None:
    """Sundays; daily 4, weekly 2 and monthly 6 each count by themselves what has a backup."""
    sundays = [end for end in nights(date(2021, 1, 1), date(2021, 11, 21)) if end.weekday() == 6]
    kept_days = dates_kept({"keep_daily": 4, "keep_weekly": 2, "keep_monthly": 6}, sundays)
    assert kept_days == ["06-27", "07-25", "08-29", "09-26", "10-31", "11-07", "11-14", "11-21"]
    assert dates_kept({"keep_last": 2}, sundays) == ["11-14", "11-21"]


def chains_kept(rules: Mapping[str, Any], kinds: str) -> str:
    """Which stay of fulls, differentials and incrementals (F, D, I), one a day; the policy is asked on the
    last day. A differential is right on its full, an incremental on the backup before it."""
    day, full, backups = 86_400_000, 0, []
    for number, kind in enumerate(kinds, 1):
        row: dict[str, Any] = {"backup_id": str(number), "number": number, "end_ts": number * day}
        if kind == "F":
            full = number
            row["kind"] = "full"
        else:
            row |= {"base": str(full), "parent_place": full if kind == "D" else number - 1}
        backups.append(row)
    window = {"window_from_ts": (len(kinds) - rules.get("window_days", 0)) * day}
    stay = {row["number"] for row in answer(QUESTION, backups=backups, in_force=[{**rules, **window}])}
    return "".join(kind if number in stay else "-" for number, kind in enumerate(kinds, 1))


@pytest.mark.parametrize(
    ("rules", "kinds", "stay"),
    [
        # Two fulls: nothing goes before the third one is there, and then the oldest with all that needs it.
        ({"redundancy": 2}, "FDIFDI", "FDIFDI"),
        ({"redundancy": 2}, "FDIFDIF", "---FDIF"),
        # One differential: a newer one takes the place of the older and its incrementals; the full stays.
        ({"redundancy": 2, "keep_differentials": 1}, "FDIID", "F---D"),
        ({"redundancy": 2, "keep_differentials": 1}, "FDIIDII", "F---DII"),
        # By time: of the fulls that are older than the period the newest stays, with what needs it.
        ({"window_days": 7}, "FIIIFIIIF", "FIIIFIIIF"),
        ({"window_days": 7}, "FIFIIIIIIIF", "--FIIIIIIIF"),
    ],
)
def test_the_examples_of_pgbackrest(rules: Mapping[str, Any], kinds: str, stay: str) -> None:
    assert chains_kept(rules, kinds) == stay


def test_gaps_do_not_count() -> None:
    """A rule of days counts days that have a backup, so backups that stopped long ago stay."""
    ends = [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 5, 9)] + [datetime(2026, 1, 1, tzinfo=UTC)]
    assert kept_ids({"keep_daily": 3}, ends) == {2, 3, 4}
    assert kept_ids({"keep_yearly": 9}, ends) == {3, 4}


def period_of(rule: str, zone: str) -> Callable[[datetime], object]:
    """What the model tells two periods apart by."""

    def period_at(end: datetime) -> object:
        local = end.astimezone(ZoneInfo(zone))
        keys: dict[str, object] = {
            "last": end,
            "hourly": (local.date(), local.hour, local.utcoffset()),
            "daily": local.date(),
            "weekly": local.isocalendar()[:2],
            "monthly": (local.year, local.month),
            "yearly": local.year,
        }
        return keys[rule]

    return period_at


def modelled(rules: Mapping[str, int], zone: str, ends: Sequence[datetime]) -> set[int]:
    expected = {len(ends)}
    for rule, count in rules.items():
        newest: dict[object, int] = {}
        period = period_of(rule, zone)
        for number in range(len(ends), 0, -1):
            newest.setdefault(period(ends[number - 1]), number)
        expected |= set(list(newest.values())[:count])
    return expected


# Beginnings near changes of clocks, of the year, and of a zone that left out a day (Apia, 2011-12-30).
BEGINNINGS = [
    datetime(2025, 3, 27, tzinfo=UTC),
    datetime(2025, 10, 23, tzinfo=UTC),
    datetime(2011, 12, 28, tzinfo=UTC),
]


CALENDARS = st.tuples(
    st.dictionaries(st.sampled_from(RULES), st.integers(1, 12), min_size=1),
    st.sampled_from(ZONES),
    st.sampled_from(BEGINNINGS),
    st.lists(st.sampled_from((15, 60, 180, 420, 1440, 1500, 10_000, 50_000)), min_size=1, max_size=40),
)


@settings(max_examples=10, deadline=None)
@given(st.lists(CALENDARS, min_size=20, max_size=20))
def test_as_the_model_over_random_calendars(
    drawn: list[tuple[dict[str, int], str, datetime, list[int]]],
) -> None:
    sources, expected = [], []
    for rules, zone, begin, minutes in drawn:
        ends = [begin + timedelta(minutes=total) for total in accumulate(minutes)]
        columns = {f"keep_{rule}": count for rule, count in rules.items()}
        sources.append(({**columns, "time_zone": zone}, ends))
        expected.append(modelled(rules, zone, ends))
    assert all_kept(sources) == expected


@pytest.mark.parametrize("rule", RULES)
def test_a_count_larger_than_there_are_keeps_one_of_each(rule: str) -> None:
    ends = [datetime(2026, 1, 1, 3 * n, tzinfo=UTC) for n in range(4)]
    assert len(kept_ids({f"keep_{rule}": 999}, ends)) == (4 if rule in ("last", "hourly") else 1)
