"""A log is cut at a full, so that it can still be restored to every later point."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import NotFound, Refused
from lakebackup.plan.logs.truncate import Full, Retention, cut_of

STATE = {"ts_domain": "tso", "start_ts": 0, "end_ts": 100, "floor_ts": None}


def full(end_ts: int, *, on_hold: bool = False, damaged: str | None = None) -> Full:
    return Full(f"f{end_ts}", end_ts, on_hold, damaged)


def test_a_log_is_cut_at_the_newest_usable_full() -> None:
    fulls = [full(10), full(30, on_hold=True), full(50), full(60, damaged="x"), full(80)]
    cut = cut_of("s", STATE, fulls, until=70)
    assert (cut.cut, cut.full, cut.leaving) == (50, "f50", ("f10",))
    assert cut_of("s", STATE, fulls, until=50).full == "f50"
    assert cut_of("s", STATE, fulls, until=49).full == "f30"


def test_notes_ranges_and_earlier_cuts() -> None:
    full_over_gap = replace(full(10), note="made over a gap")
    assert cut_of("s", STATE, [full_over_gap], until=10).note == "made over a gap"
    # To delete only ranges, no full is needed and none is deleted.
    cut = cut_of("s", STATE, [full(10)], until=70, ranges_only=True)
    assert (cut.cut, cut.full, cut.leaving) == (70, None, ())
    # A cut never moves back.
    cut = cut_of("s", {**STATE, "start_ts": 5, "floor_ts": 40}, [full(10)], until=20)
    assert (cut.cut, cut.floor) == (40, 40)


def test_cuts_that_are_refused() -> None:
    with pytest.raises(NotFound, match="no log of s"):
        cut_of("s", None, [], until=1)
    with pytest.raises(Refused, match=r"no whole full at or before 9 \(1970"):
        cut_of("s", STATE, [full(10), full(5, damaged="x")], until=9)
    with pytest.raises(Refused, match="whole up to 100"):
        cut_of("s", STATE, [full(10)], until=101)
    with pytest.raises(Refused, match="no checkpoint yet"):
        cut_of("s", {**STATE, "start_ts": None, "end_ts": 0}, [], until=0, ranges_only=True)


@pytest.mark.parametrize("ranges_only", [False, True])
@pytest.mark.parametrize(
    ("retention", "limit", "keeper"),
    [
        (Retention(window_from_ts=45), 30, "its policy"),
        (Retention(window_from_ts=50), 50, "its policy"),
        (Retention(window_from_ts=9), 0, "its policy"),
        (Retention(redundancy=2), 50, "its policy"),
        (Retention(redundancy=9), 0, "its policy"),
        (Retention(window_from_ts=75, redundancy=3), 30, "its policy"),
        (Retention(min_redundancy=2), 50, "the minimum redundancy"),
        (Retention(held_ts=49), 30, "a hold"),
    ],
)
def test_a_policy_and_a_hold_limit_the_cut(
    retention: Retention, limit: int, keeper: str, ranges_only: bool
) -> None:
    fulls = [full(10), full(30), full(50), full(60, damaged="x"), full(80)]
    state = {**STATE, "ts_domain": "ms"}
    with pytest.raises(Refused, match=f"would take what {keeper}.* keeps of s"):
        cut_of("s", state, fulls, until=80, ranges_only=ranges_only, retention=retention)
    if limit:
        assert (
            cut_of("s", state, fulls, until=limit, ranges_only=ranges_only, retention=retention).cut == limit
        )


def test_a_window_is_measured_in_the_ts_domain_of_the_feed() -> None:
    state = {**STATE, "end_ts": 9 << 18}
    fulls = [full(2 << 18), full(5 << 18), full(7 << 18)]
    with pytest.raises(Refused, match=f"--endts {5 << 18}") as refused:
        cut_of("s", state, fulls, until=8 << 18, retention=Retention(window_from_ts=6))
    assert "its policy" in refused.value.message


@given(
    fulls=st.lists(
        st.builds(full, st.integers(0, 100), on_hold=st.booleans(), damaged=st.sampled_from([None, "x"])),
        unique_by=lambda backup: backup.backup_id,
    ),
    until=st.integers(0, 100),
    floor=st.none() | st.integers(0, 100),
)
def test_no_restore_from_the_cut_on_loses_its_full(fulls: list[Full], until: int, floor: int | None) -> None:
    state = {**STATE, "floor_ts": floor}
    try:
        cut = cut_of("s", state, fulls, until=until)
    except Refused:
        assert not [backup for backup in fulls if backup.end_ts <= until and not backup.damaged]
        return
    remaining = [backup for backup in fulls if backup.backup_id not in cut.leaving]
    assert cut.cut >= (floor or 0)
    assert any(backup.backup_id == cut.full and not backup.damaged for backup in remaining)
    assert all(backup in remaining for backup in fulls if backup.held or backup.end_ts >= cut.cut)
