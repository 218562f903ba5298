"""Compares the views on backups of other programs with a plain model: which times have a restore path.

Logs overlap, end together, have no span, are lost or belong to an abandoned history. Bases are deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.sql.test_coverage import coverage_rows, engine_over

LAST_TS = 14
#: Without shrinking: every example has many inventories and takes seconds.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
STATES = st.sampled_from(["complete"] * 7 + ["deleted", "out_of_sync"])


@dataclass(frozen=True)
class Backup:
    """A backup in an inventory. A log covers (start_ts, end_ts]. Others have a parent or are fulls."""

    backup_id: str
    source: str
    number: int
    end_ts: int
    state: str
    start_ts: int | None = None
    parent: Backup | None = None

    @property
    def is_log(self) -> bool:
        return self.start_ts is not None

    @property
    def begin_ts(self) -> int:
        """A restore to a later time may need this backup. A log without a span begins just before its end."""
        return min(self.start_ts or 0, self.end_ts - 1) if self.is_log else self.end_ts - 1

    @property
    def chain(self) -> list[Backup]:
        return [*(self.parent.chain if self.parent else []), self]

    @property
    def usable(self) -> bool:
        """Whether a restore may use this backup. Its ancestors may be out of sync, but not deleted."""
        ancestors = self.chain[:-1]
        return self.state == "complete" and all(ancestor.state != "deleted" for ancestor in ancestors)

    def row(self) -> dict[str, Any]:
        parent = self.parent
        return {
            "backup_id": self.backup_id, "source": self.source, "number": self.number, "place": self.number,
            "source_kind": "other", "state": self.state, "start_ts": self.start_ts, "end_ts": self.end_ts,
            "kind": "log" if self.is_log else "differential" if parent else "full",
            "base": self.chain[0].backup_id, "parent": parent.backup_id if parent else None,
            "parent_place": parent.number if parent else None, "chain_position": len(self.chain) - 1,
        }  # fmt: skip


@st.composite
def inventories(draw: st.DrawFn, source: str) -> list[Backup]:
    """Draws up to nine backups of one source, numbered by end time, as an import numbers them."""
    drawn = draw(
        st.lists(
            st.tuples(st.integers(1, LAST_TS), st.sampled_from([None, None, 0, 1, 2, 3, 8]), STATES),
            min_size=1,
            max_size=9,
        )
    )
    backups: list[Backup] = []
    for number, (end_ts, span, state) in enumerate(sorted(drawn, key=lambda row: row[0]), 1):
        start_ts = None if span is None else max(0, end_ts - span)
        bases = [backup for backup in backups if not backup.is_log]
        parent = draw(st.sampled_from([None, *bases[-1:]])) if span is None else None
        backups.append(Backup(f"{source}-{number}", source, number, end_ts, state, start_ts, parent))
    return backups


def covering_logs(backups: list[Backup]) -> list[Backup]:
    """Return the logs by end and start time, without those that lie within a longer one."""
    logs = [backup for backup in backups if backup.is_log and backup.usable]
    outer = [
        log
        for log in logs
        if not any(
            (longer.start_ts or 0) < (log.start_ts or 0) and log.end_ts < longer.end_ts for longer in logs
        )
    ]
    return sorted(outer, key=lambda log: (log.end_ts, log.start_ts, log.number))


def model_path(backups: list[Backup], ts: int) -> list[Backup]:
    """Return the steps of a restore to `ts`, or an empty list when there is no path."""
    bases = [backup for backup in backups if not backup.is_log and backup.usable and backup.end_ts <= ts]
    if not bases:
        return []
    base = max(bases, key=lambda backup: (backup.end_ts, backup.number))
    if base.end_ts == ts:
        return base.chain
    steps, reached_ts = [], base.end_ts
    logs = [log for log in covering_logs(backups) if log.begin_ts < ts]
    last_ts = min((log.end_ts for log in logs if log.end_ts >= ts), default=-1)
    for log in logs:
        if base.end_ts < log.end_ts <= last_ts:
            if (log.start_ts or 0) > reached_ts:
                return []
            steps.append(log)
            reached_ts = log.end_ts
    return [*base.chain, *steps] if reached_ts >= ts else []


def require_agreement(sources: list[list[Backup]], redundancy: int) -> None:
    backups = [backup for inventory in sources for backup in inventory]
    policies = [{"source": inventory[0].source, "redundancy": redundancy, "at": 1} for inventory in sources]
    engine = engine_over({"backups": [backup.row() for backup in backups], "policies": policies})
    paths: dict[str, list[dict[str, Any]]] = {}
    for row in coverage_rows(
        engine, "SELECT * FROM restore_paths ORDER BY source, covers_from, covers_to, step"
    ):
        paths.setdefault(row["source"], []).append(row)
    coverage = coverage_rows(engine, "SELECT * FROM coverage")
    points = {row["backup_id"] for row in coverage_rows(engine, "SELECT backup_id FROM restore_points")}
    unusable = {row["backup_id"]: row for row in coverage_rows(engine, "SELECT * FROM unusable_backups")}
    restorable = {row["source"]: row["restorable_ts"] for row in coverage_rows(engine, "SELECT * FROM rpo")}
    newest = {
        row["source"]: row["backup_id"]
        for row in coverage_rows(engine, "SELECT source, backup_id FROM status")
    }
    policy = {
        row["backup_id"]: row["status"] for row in coverage_rows(engine, "SELECT * FROM obsolete_backups")
    }
    for inventory in sources:
        source = inventory[0].source
        expected = {ts: model_path(inventory, ts) for ts in range(LAST_TS + 2)}
        steps: dict[int, list[str]] = {ts: [] for ts in expected}
        for (start, end, _), rows in groupby(
            paths.get(source, []), lambda row: (row["covers_from"], row["covers_to"], row["target_id"])
        ):
            ids = [row["backup_id"] for row in rows]
            for ts in range(start + 1, end + 1):
                steps[ts] += ids
        assert steps == {ts: [backup.backup_id for backup in path] for ts, path in expected.items()}, (
            inventory
        )
        reached = {ts for ts, path in expected.items() if path}
        intervals = [row for row in coverage if row["source"] == source and row["status"] == "restorable"]
        covered = {ts for row in intervals for ts in range((row["from_ts"] or 0) + 1, row["to_ts"] + 1)}
        assert covered == reached, inventory
        steps_taken = {backup for path in expected.values() for backup in path}
        assert {backup.backup_id for backup in steps_taken if backup.state == "complete"} <= points
        assert restorable.get(source) == max(reached, default=None)
        assert (newest[source] is None) == (not reached)
        for backup in inventory:
            is_unusable = backup.backup_id in unusable
            if backup.is_log and backup.state == "complete":
                times = reached & set(range(backup.begin_ts + 1, backup.end_ts + 1))
                is_needed = backup in steps_taken or any(expected[ts][-1].is_log for ts in times)
                assert not (is_unusable and is_needed), (backup, inventory)
                assert is_unusable or times, (backup, inventory)
            else:
                assert is_unusable == (not backup.usable and backup.state != "deleted"), backup
        for path in expected.values():
            base = next((backup for backup in reversed(path) if not backup.is_log), None)
            if base and policy[base.backup_id] == "VALID":
                assert {policy[backup.backup_id] for backup in path} == {"VALID"}


def inventory_lists(count: int) -> st.SearchStrategy[list[list[Backup]]]:
    return st.tuples(*(inventories(f"s{number}") for number in range(count))).map(list)


@given(inventory_lists(30), st.integers(1, 3))
@settings(max_examples=2, phases=PHASES)
def test_views_agree_on_what_can_be_restored(sources: list[list[Backup]], redundancy: int) -> None:
    require_agreement(sources, redundancy)


@pytest.mark.long
@given(inventory_lists(30), st.integers(1, 3))
@settings(max_examples=200, phases=PHASES)
def test_views_agree_on_what_can_be_restored_of_many_inventories(
    sources: list[list[Backup]], redundancy: int
) -> None:
    require_agreement(sources, redundancy)
