"""What the views say of backups of other programs, beside a plain model: which times have a path.

Logs overlap, end together, have no span, are lost or of a history that was left; bases are deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.sql.test_coverage import asked, engine_over

LAST_TS = 14
#: Every example has many inventories, and takes seconds: a failure is shown as it is.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
STATES = st.sampled_from(["complete"] * 7 + ["deleted", "out_of_sync"])


@dataclass(frozen=True)
class Item:
    """A backup of an inventory: a log covers (start_ts, end_ts]; another one has a parent, or is a full."""

    backup_id: str
    source: str
    number: int
    end_ts: int
    state: str
    start_ts: int | None = None
    parent: Item | None = None

    @property
    def is_log(self) -> bool:
        return self.start_ts is not None

    @property
    def begin_ts(self) -> int:
        """The instant after which a restore may need it; a log without a span begins with its instant."""
        return min(self.start_ts or 0, self.end_ts - 1) if self.is_log else self.end_ts - 1

    @property
    def chain(self) -> list[Item]:
        return [*(self.parent.chain if self.parent else []), self]

    @property
    def usable(self) -> bool:
        """Whether it is restored from: it may continue a backup of a history that was left."""
        ancestors = self.chain[:-1]
        return self.state == "complete" and all(item.state != "deleted" for item in ancestors)

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
def inventories(draw: st.DrawFn, source: str) -> list[Item]:
    """Up to nine backups of one source, numbered in the order of their ends, as an import does."""
    drawn = draw(
        st.lists(
            st.tuples(st.integers(1, LAST_TS), st.sampled_from([None, None, 0, 1, 2, 3, 8]), STATES),
            min_size=1,
            max_size=9,
        )
    )
    items: list[Item] = []
    for number, (end_ts, span, state) in enumerate(sorted(drawn, key=lambda item: item[0]), 1):
        start_ts = None if span is None else max(0, end_ts - span)
        bases = [item for item in items if not item.is_log]
        parent = draw(st.sampled_from([None, *bases[-1:]])) if span is None else None
        items.append(Item(f"{source}-{number}", source, number, end_ts, state, start_ts, parent))
    return items


def covering_logs(items: list[Item]) -> list[Item]:
    """The logs in the order of what they hold, without those that lie within a longer one."""
    logs = [item for item in items if item.is_log and item.usable]
    outer = [
        log
        for log in logs
        if not any(
            (longer.start_ts or 0) < (log.start_ts or 0) and log.end_ts < longer.end_ts for longer in logs
        )
    ]
    return sorted(outer, key=lambda log: (log.end_ts, log.start_ts, log.number))


def model_path(items: list[Item], ts: int) -> list[Item]:
    """The steps of a restore to `ts`; none: nothing leads there."""
    bases = [item for item in items if not item.is_log and item.usable and item.end_ts <= ts]
    if not bases:
        return []
    base = max(bases, key=lambda item: (item.end_ts, item.number))
    if base.end_ts == ts:
        return base.chain
    steps, reached_ts = [], base.end_ts
    logs = [log for log in covering_logs(items) if log.begin_ts < ts]
    last_ts = min((log.end_ts for log in logs if log.end_ts >= ts), default=-1)
    for log in logs:
        if base.end_ts < log.end_ts <= last_ts:
            if (log.start_ts or 0) > reached_ts:
                return []
            steps.append(log)
            reached_ts = log.end_ts
    return [*base.chain, *steps] if reached_ts >= ts else []


def require_agreement(sources: list[list[Item]], redundancy: int) -> None:
    items = [item for some in sources for item in some]
    policies = [{"source": some[0].source, "redundancy": redundancy, "at": 1} for some in sources]
    engine = engine_over({"backups": [item.row() for item in items], "policies": policies})
    paths: dict[str, list[dict[str, Any]]] = {}
    for row in asked(engine, "SELECT * FROM restore_paths ORDER BY source, covers_from, covers_to, step"):
        paths.setdefault(row["source"], []).append(row)
    coverage = asked(engine, "SELECT * FROM coverage")
    points = {row["backup_id"] for row in asked(engine, "SELECT backup_id FROM restore_points")}
    unusable = {row["backup_id"]: row for row in asked(engine, "SELECT * FROM unusable_backups")}
    restorable = {row["source"]: row["restorable_ts"] for row in asked(engine, "SELECT * FROM rpo")}
    newest = {
        row["source"]: row["backup_id"] for row in asked(engine, "SELECT source, backup_id FROM status")
    }
    policy = {row["backup_id"]: row["status"] for row in asked(engine, "SELECT * FROM obsolete_backups")}
    for some in sources:
        source = some[0].source
        expected = {ts: model_path(some, ts) for ts in range(LAST_TS + 2)}
        steps: dict[int, list[str]] = {ts: [] for ts in expected}
        for (begin, end, _), rows in groupby(
            paths.get(source, []), lambda row: (row["covers_from"], row["covers_to"], row["target_id"])
        ):
            ids = [row["backup_id"] for row in rows]
            for ts in range(begin + 1, end + 1):
                steps[ts] += ids
        assert steps == {ts: [item.backup_id for item in path] for ts, path in expected.items()}, some
        reached = {ts for ts, path in expected.items() if path}
        intervals = [row for row in coverage if row["source"] == source and row["status"] == "restorable"]
        covered = {ts for row in intervals for ts in range((row["from_ts"] or 0) + 1, row["to_ts"] + 1)}
        assert covered == reached, some
        steps_taken = {item for path in expected.values() for item in path}
        assert {item.backup_id for item in steps_taken if item.state == "complete"} <= points
        assert restorable.get(source) == max(reached, default=None)
        assert (newest[source] is None) == (not reached)
        for item in some:
            is_unusable = item.backup_id in unusable
            if item.is_log and item.state == "complete":
                times = reached & set(range(item.begin_ts + 1, item.end_ts + 1))
                needed = item in steps_taken or any(expected[ts][-1].is_log for ts in times)
                assert not (is_unusable and needed), (item, some)
                assert is_unusable or times, (item, some)
            else:
                assert is_unusable == (not item.usable and item.state != "deleted"), item
        for path in expected.values():
            base = next((item for item in reversed(path) if not item.is_log), None)
            if base and policy[base.backup_id] == "VALID":
                assert {policy[item.backup_id] for item in path} == {"VALID"}


def many(count: int) -> st.SearchStrategy[list[list[Item]]]:
    return st.tuples(*(inventories(f"s{number}") for number in range(count))).map(list)


@given(many(30), st.integers(1, 3))
@settings(max_examples=2, phases=PHASES)
def test_views_agree_on_what_can_be_restored(sources: list[list[Item]], redundancy: int) -> None:
    require_agreement(sources, redundancy)


@pytest.mark.long
@given(many(30), st.integers(1, 3))
@settings(max_examples=200, phases=PHASES)
def test_views_agree_on_what_can_be_restored_of_many_inventories(
    sources: list[list[Item]], redundancy: int
) -> None:
    require_agreement(sources, redundancy)
