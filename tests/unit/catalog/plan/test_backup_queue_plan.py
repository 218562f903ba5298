"""The plan of the next backup of queues: its parent, the messages that it reads, and its refusals.

Needs no broker and no catalog.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lakebackup.errors import NeedsFull, Refused, UsageProblem
from lakebackup.formats.queues.snapshot_json import QueueAt, SnapshotJson
from lakebackup.plan.partitions import RegionState, TopicState
from lakebackup.plan.queues.backup import (
    QueueRange,
    Queues,
    from_lows,
    needs_full,
)
from lakebackup.plan.queues.history import (
    Continuation,
    History,
    Start,
    Watermark,
    choose_history,
    find_continuation,
    require_parent_topics,
    resume_limit,
)
from lakebackup.plan.topics.backup import Parent
from lakebackup_jobs.queues.backup.open_transactions import last_tid
from lakebackup_jobs.queues.transaction_scan import RangeScan

E1, E2 = "1" * 32, "2" * 32


def topic(name: str = "delta.0", epoch: str = E1, regions: int = 1, **settings: str) -> TopicState:
    return TopicState(name, epoch, regions, 1, settings)


def region(
    end: int, *, low: int = 0, name: str = "delta.0", epoch: str = E1, partition: int = 0
) -> RegionState:
    return RegionState(name, epoch, str(partition), low, end, end, None)


TOPICS = (topic(),)
FULL = Parent("f1", "f1", 1, 0, 0, 1, 1, 0, 1000)
CHILD = Parent("i2", "f1", 2, 1, 1, 2, 2, 0, 2000)


def continue_from(
    parent: Parent = FULL, *starts: Start, open_at: str | None = None, restored: History | None = None
) -> Continuation:
    return Continuation(parent, restored, starts, 50, open_at)


def child(continuation: Continuation, *regions: RegionState, **changes: Any) -> Any:
    options = {"mode": "incremental", "topics": TOPICS, **changes}
    return Queues("b", "social", continuation, options["topics"], regions, 5000).child(options["mode"])


def full(
    continuation: Continuation,
    *regions: RegionState,
    snapshot: SnapshotJson | None = None,
    topics: Any = TOPICS,
) -> Any:
    return Queues("b", "social", continuation, topics, regions, 5000).full(snapshot)


def snapshot_json(position: int, no_transaction_pos: int, **changes: Any) -> SnapshotJson:
    queue = QueueAt(
        topic="delta.0", partition=0, position=position, max_no_transaction_pos=no_transaction_pos
    )
    return SnapshotJson(format=1, last_tid=40, queues=(queue,), **changes)


def span(start: int, end: int, own_from: int | None = None, rank: int = 0) -> QueueRange:
    return QueueRange("delta.0", E1, "0", start, end, rank, start if own_from is None else own_from)


# --- backups with a parent


@pytest.mark.parametrize(
    ("parent", "first", "open_at", "end", "tasks"),
    [
        pytest.param(FULL, 4, "f1", 12, ((span(4, 12, 7),),), id="a full with open transactions"),
        pytest.param(FULL, 4, "f1", 7, ((span(4, 7, 7),),), id="the same, when nothing came since"),
        pytest.param(FULL, 4, None, 12, ((span(7, 12),),), id="a full without"),
        pytest.param(CHILD, 4, "i2", 12, ((span(7, 12),),), id="an incremental: the chain has what is open"),
        pytest.param(CHILD, 7, None, 7, (), id="nothing new"),
    ],
)
def test_a_child_reads_from_the_end_of_its_parent(
    parent: Parent, first: int, open_at: str | None, end: int, tasks: Any
) -> None:
    plan = child(continue_from(parent, Start("delta.0", E1, "0", first, 7), open_at=open_at), region(end))
    assert (plan.tasks, plan.open_at, plan.lost) == (tasks, open_at, ())
    assert [(p.start_position, p.end_position) for p in plan.positions] == [(7, end)]


@pytest.mark.parametrize(("mode", "kind"), [("differential", "cumulative"), ("incremental", "differential")])
def test_the_mode_sets_the_kind_in_the_catalog(mode: str, kind: str) -> None:
    plan = child(continue_from(FULL, Start("delta.0", E1, "0", 7, 7)), region(9), mode=mode)
    assert (plan.kind, plan.level, plan.start_ts, plan.keep) == (kind, 1, 1000, True)


@pytest.mark.parametrize(
    ("parent", "first", "open_at", "region_changes", "lost", "complaint"),
    [
        pytest.param(CHILD, 7, None, {"low": 7}, None, None, id="purged up to what is needed"),
        pytest.param(CHILD, 7, None, {"low": 9}, (7, 9, "purged"), "offsets [7, 9) were", id="purged"),
        pytest.param(FULL, 4, "f1", {"low": 6}, (4, 6, "purged"), "offsets [4, 6) were", id="in front"),
        pytest.param(FULL, 4, None, {"low": 6}, None, None, id="in front, but nothing was open"),
        pytest.param(CHILD, 7, None, {"end": 6}, (7, None, "recreated"), "was reset", id="ends too early"),
        pytest.param(CHILD, 7, None, {"epoch": E2}, (7, None, "recreated"), "was reset", id="recreated"),
    ],
)
def test_lost_messages_need_a_full(
    parent: Parent,
    first: int,
    open_at: str | None,
    region_changes: dict[str, Any],
    lost: Any,
    complaint: str | None,
) -> None:
    start, topics = Start("delta.0", E1, "0", first, 7), [topic(epoch=region_changes.get("epoch", E1))]
    plan = child(
        continue_from(parent, start, open_at=open_at), region(**{"end": 12, **region_changes}), topics=topics
    )
    gaps = [(g.epoch, g.from_position, g.to_position, g.reason) for g in plan.lost]
    assert gaps == ([(E1, *lost)] if lost else [])
    if complaint:
        error = needs_full(plan.lost)
        assert "topic delta.0, partition 0" in error.message
        assert complaint in error.message
        assert "--mode full" in error.hint
        assert error.exit_code == 9


def test_a_deleted_queue_is_a_reset() -> None:
    starts = (Start("delta.0", E1, "0", 7, 7), Start("journal.0", E2, "0", 3, 3))
    plan = child(continue_from(CHILD, *starts), region(9))
    assert [(g.scope, g.from_position) for g in plan.lost] == [("journal.0", 3)]


def test_new_partitions_are_read_from_their_beginning_which_must_exist() -> None:
    start = Start("delta.0", E1, "0", 7, 7)
    plan = child(continue_from(CHILD, start), region(9), region(4, partition=1), topics=[topic(regions=2)])
    assert (plan.lost, plan.new_regions) == ((), 1)
    assert plan.tasks == ((span(7, 9), replace(span(0, 4), region="1")),)
    purged = child(continue_from(CHILD, start), region(9), region(4, partition=1, low=2))
    assert [(g.region, g.from_position, g.to_position) for g in purged.lost] == [("1", 0, 2)]


def test_coverage_begins_with_a_restore() -> None:
    restored = history(**RESTORE, restored_at=3_000_000)
    plan = child(continue_from(CHILD, Start("delta.0", E1, "0", 20, 20), restored=restored), region(25))
    assert (plan.restore_id, plan.start_ts, plan.tasks) == ("r1", 3000, ((span(20, 25),),))


def test_all_earlier_messages_are_searched_for_ends_of_transactions() -> None:
    start = Start("delta.0", E1, "0", 700_000, 700_000)
    assert child(continue_from(CHILD, start), region(700_020)).look_back == ((span(0, 700_000, 700_000),),)
    assert child(continue_from(CHILD, start), region(700_020, low=9)).look_back == (
        (span(9, 700_000, 700_000),),
    )
    assert child(continue_from(CHILD, start), region(700_020, low=700_000)).look_back == ()


def test_only_the_continued_history_is_searched_for_ends() -> None:
    marks = (
        Watermark("delta.0", E1, "0", "r1", 10),
        Watermark("delta.0", E1, "0", "r2", 20),
        Watermark("delta.0", E1, "0", "r3", 31),
        Watermark("delta.0", E1, "1", "r2", 5),
        Watermark("delta.0", E2, "0", "r2", 5),
    )
    continuation = replace(continue_from(CHILD, Start("delta.0", E1, "0", 30, 30)), watermarks=marks)
    plan = child(continuation, region(40))
    assert plan.look_back == ((span(20, 30, 30),),)
    assert plan.watermarks == (("delta.0", E1, "0", "r1"), ("delta.0", E1, "0", "r2"))
    after_watermark = replace(continue_from(CHILD, Start("delta.0", E1, "0", 20, 20)), watermarks=marks)
    assert child(after_watermark, region(40)).look_back == ()
    assert full(continuation, region(40), snapshot=snapshot_json(28, 25)).look_back == ((span(20, 25, 25),),)


def test_deleted_messages_are_not_searched() -> None:
    tasks = ((span(0, 50, 50), replace(span(0, 9, 9), region="1")), (span(50, 60, 60, 1),))
    region_key = ("delta.0", E1, "0")
    assert from_lows(tasks, {region_key: 20}) == ((span(20, 50, 50), tasks[0][1]), tasks[1])
    assert from_lows(tasks, {region_key: 55}) == ((span(50, 50, 50), tasks[0][1]), (span(55, 60, 60, 1),))
    assert from_lows(tasks, {}) == tasks


def test_runs_before_the_newest_full_or_restore_are_not_resumed() -> None:
    histories = [history(**BACKED), history("journal.0", E2, full_started_at=900), history(epoch=E2)]
    assert resume_limit(histories, [topic()]) == 100
    assert resume_limit([history(**BACKED, **RESTORE, restored_at=250)], [topic()]) == 250
    assert resume_limit(histories, [topic("delta.9")]) == 0


def test_compacted_topics_and_unnamed_queues_are_refused() -> None:
    compacted = topic(**{"cleanup.policy": "compact,delete"})
    for planned in (lambda: child(continue_from(CHILD), region(9), topics=[compacted]),
                    lambda: full(Continuation(), region(9), topics=[compacted])):  # fmt: skip
        with pytest.raises(Refused, match=r"delta\.0 is compacted"):
            planned()
    # A queue of the engine exists, and the request does not name it.
    starts = [Start("delta.0", E1, "0", 7, 7), Start("journal.0", E2, "0", 3, 3)]
    with pytest.raises(UsageProblem, match=r"journal\.0 is a queue of this engine"):
        require_parent_topics(starts, [topic()], ["delta.0", "journal.0"])
    require_parent_topics(starts, [topic()], ["delta.0"])
    with pytest.raises(NeedsFull, match="no backup of social"):
        child(Continuation(), region(9))


# --- fulls


def test_a_full_ends_at_its_snapshot_and_stores_no_messages() -> None:
    plan = full(Continuation(), region(12), snapshot=snapshot_json(7, 5))
    assert [(p.start_position, p.end_position) for p in plan.positions] == [(7, 7)]
    assert (plan.kind, plan.level, plan.parent, plan.start_ts, plan.keep) == ("full", 0, None, None, False)
    assert plan.tasks == ((span(5, 7),),)
    assert (plan.snapshot_tid, plan.open_at, plan.notes) == (40, None, ())


def test_a_full_searches_for_ends_only_if_unnamed_transactions_are_open() -> None:
    assert full(Continuation(), region(12), snapshot=snapshot_json(7, 7)).tasks == ()
    assert full(Continuation(), region(12), snapshot=snapshot_json(7, 5)).look_back == ((span(0, 5, 5),),)
    assert (
        full(Continuation(), region(12), snapshot=snapshot_json(7, 5, open_transactions=("t",))).look_back
        == ()
    )


def test_a_full_without_snapshot_json_is_at_the_end_of_the_queues() -> None:
    plan = full(Continuation(), region(12, low=3))
    assert [(p.start_position, p.end_position) for p in plan.positions] == [(12, 12)]
    assert plan.tasks == ((span(3, 12),),)
    assert "has applied everything" in plan.notes[0]


def test_a_full_without_snapshot_json_continues_from_the_last_backup() -> None:
    start = Start("delta.0", E1, "0", 4, 7, 49)
    plan = full(continue_from(CHILD, start, open_at="i2"), region(12))
    assert plan.tasks == ((span(4, 12, 7),),)
    assert (plan.open_at, plan.last_tid, plan.tids) == ("i2", 50, (("delta.0", E1, "0", 49),))
    assert full(continue_from(CHILD, start), region(12)).tasks == ((span(7, 12),),)


def test_a_full_with_snapshot_json_ignores_the_state_of_the_last_backup() -> None:
    plan = full(
        continue_from(CHILD, Start("delta.0", E1, "0", 4, 7), open_at="i2"),
        region(12),
        snapshot=snapshot_json(7, 7),
    )
    assert (plan.last_tid, plan.open_at) == (None, None)


def test_a_full_of_a_snapshot_that_nothing_can_continue_from_is_refused() -> None:
    with pytest.raises(NeedsFull, match="offsets below 6 were deleted"):
        full(Continuation(), region(12, low=6), snapshot=snapshot_json(7, 5))
    assert full(Continuation(), region(12, low=5), snapshot=snapshot_json(7, 5)).tasks == ((span(5, 7),),)


def test_a_full_records_lost_messages_and_continues() -> None:
    starts = (Start("delta.0", E1, "0", 7, 7), Start("journal.0", E1, "0", 3, 3))
    continuation = continue_from(CHILD, *starts)
    journal = region(1, name="journal.0", epoch=E2)
    plan = full(continuation, region(12, low=9), journal)
    assert [(g.scope, g.epoch, g.from_position, g.to_position, g.reason, g.bridged) for g in plan.lost] == [
        ("delta.0", E1, 7, 9, "purged", False),
        ("journal.0", E1, 3, None, "recreated", False),
    ]
    assert [(g.from_ts, g.to_ts) for g in plan.lost] == [(2000, 5000)] * 2


def test_a_full_after_a_restore_has_lost_nothing() -> None:
    restored = history(**RESTORE, restored_at=3_000_000)
    continuation = continue_from(CHILD, Start("delta.0", E1, "0", 20, 20), restored=restored)
    plan = full(continuation, region(25, low=22))
    assert (plan.lost, plan.restore_id) == ((), "r1")


# --- the history that is continued


def history(name: str = "delta.0", epoch: str = E1, **changes: Any) -> History:
    return History(name, epoch, **changes)


BACKED: dict[str, Any] = {
    "backup_id": "i2", "number": 2, "started_at": 200,
    "full_id": "f1", "full_number": 1, "full_started_at": 100,
}  # fmt: skip
RESTORE: dict[str, Any] = {
    "restore_id": "r1", "restored_id": "i2", "restored_full_id": "f1", "whole": True, "restored_tid": 30,
}  # fmt: skip


def continues_restore(candidate: History, mode: Any) -> bool:
    return (candidate.continued_by(mode) or ("", ""))[0] == "restore"


def test_the_newest_backup_of_these_queues_is_continued() -> None:
    newest = history(**BACKED)
    assert choose_history([newest, history("delta.0", E2, **BACKED)], [topic()], "incremental") is newest
    assert not continues_restore(newest, "incremental")


@pytest.mark.parametrize(
    ("restored_at", "incremental", "differential"),
    [(50, False, False), (150, False, True), (250, True, True)],
)
def test_a_later_restore_is_continued(restored_at: int, incremental: bool, differential: bool) -> None:
    candidate = history(**BACKED, **RESTORE, restored_at=restored_at)
    assert continues_restore(candidate, "incremental") is incremental
    assert continues_restore(candidate, "differential") is differential


def test_the_history_to_continue_is_chosen() -> None:
    restored = history(**RESTORE, restored_at=50)
    assert choose_history([restored], [topic()], "auto") is restored
    assert continues_restore(restored, "differential")
    older, both_topics = history(**BACKED), [topic(), topic("delta.1", E2)]
    assert choose_history([older], both_topics, "incremental") is older
    newer = history("delta.1", E2, backup_id="i2", number=2, started_at=200)
    assert choose_history([older, newer], both_topics, "differential") is older


def test_queues_of_two_histories_are_refused() -> None:
    restored = history("delta.1", E2, **RESTORE, restored_at=250)
    with pytest.raises(NeedsFull, match="have different histories"):
        choose_history([history(**BACKED), restored], [topic(), topic("delta.1", E2)], "incremental")


class Catalog:
    """A fake reader. Its rows are found by the name of a query and the query's one parameter."""

    def __init__(self, **answers: dict[str, Any]) -> None:
        self.answers = answers

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        (key,) = parameters.values()
        rows = self.answers.get(name, {}).get(key, [])
        return rows if isinstance(rows, list) else [rows]

    def first_row(self, name: str, **parameters: Any) -> dict[str, Any] | None:
        return next(iter(self.rows(name, **parameters)), None)


def row(parent: Parent, **changes: Any) -> dict[str, Any]:
    columns = {name: getattr(parent, name) for name in Parent.__match_args__}
    own = {"kind": "differential" if parent.level else "full", "last_tid": 30, "open_transactions": 0}
    return columns | own | {"reason": None} | changes


STARTS: dict[str, Any] = {
    "scope": "delta.0", "epoch": E1, "region": "0", "end_position": 7,
    "no_transaction_position": 4, "last_tid": 29, "leader_epoch": 3,
}  # fmt: skip
RESTORED = {"scope": "delta.0", "epoch": E1, "region": "0", "base_position": 10, "end_position": 20}


def test_the_end_of_the_parent_is_read() -> None:
    catalog: Any = Catalog(
        queue_parent={"i2": row(CHILD, open_transactions=1)}, queue_starts={"i2": [STARTS]}
    )
    continuation = find_continuation(catalog, [history(**BACKED)], [topic()], "incremental")
    assert (continuation.parent, continuation.open_at, continuation.last_tid) == (CHILD, "i2", 30)
    assert continuation.starts == (Start("delta.0", E1, "0", 4, 7, 29, 3),)


def test_a_differential_depends_on_the_newest_full() -> None:
    catalog: Any = Catalog(queue_parent={"f1": row(FULL)}, queue_starts={"f1": [STARTS]})
    continuation = find_continuation(catalog, [history(**BACKED)], [topic()], "differential")
    assert (continuation.parent, continuation.open_at, continuation.start_ts) == (FULL, None, 1000)


@pytest.mark.parametrize(
    ("mode", "parent_changes", "restore_changes", "parent", "start"),
    [
        ("incremental", {}, {}, CHILD, 20),
        ("differential", {}, {}, FULL, 10),
        ("incremental", {"reason": "aside"}, {}, FULL, 10),
        ("incremental", {"reason": "deleted"}, {}, FULL, 10),
        ("incremental", {"open_transactions": 1}, {}, FULL, 10),
        ("incremental", {}, {"whole": False}, FULL, 10),
        ("incremental", {}, {"restored_id": "f1"}, FULL, 10),
    ],
)
def test_a_backup_after_a_restore_depends_on_the_restored_backup(
    mode: Any, parent_changes: dict[str, Any], restore_changes: dict[str, Any], parent: Parent, start: int
) -> None:
    catalog: Any = Catalog(
        queue_parent={"i2": row(CHILD, **parent_changes), "f1": row(FULL, last_tid=5)},
        queue_restored={"r1": [RESTORED]},
    )
    restored = history(**BACKED, **RESTORE | restore_changes, restored_at=250)
    continuation = find_continuation(catalog, [restored], [topic()], mode)
    assert (continuation.parent, continuation.last_tid, continuation.open_at) == (parent, 30, None)
    assert continuation.starts == (Start("delta.0", E1, "0", start, start),)
    assert bool(continuation.notes) is bool(parent_changes)


def test_an_unusable_full_asks_for_a_new_one() -> None:
    catalog: Any = Catalog(
        queue_parent={"i2": row(CHILD, reason="deleted"), "f1": row(FULL, reason="deleted")},
        queue_restored={"r1": [RESTORED]},
    )
    with pytest.raises(NeedsFull, match="f1, which cannot be continued: it is deleted"):
        find_continuation(catalog, [history(**BACKED, **RESTORE, restored_at=250)], [topic()], "incremental")


def test_unknown_queues_have_lost_the_messages_after_the_newest_backup() -> None:
    catalog: Any = Catalog(queue_parent={"i2": row(CHILD)}, queue_starts={"i2": [STARTS]})
    recreated = [topic(epoch=E2)]
    continuation = find_continuation(catalog, [history(**BACKED)], recreated, "incremental")
    plan = child(continuation, region(3, epoch=E2), topics=recreated)
    assert [(g.epoch, g.from_position, g.to_position) for g in plan.lost] == [(E1, 7, None)]


def test_recreated_queues_have_lost_the_messages_after_their_restore() -> None:
    """This holds also while the queues of the newest backup exist, which have other names."""
    catalog: Any = Catalog(
        queue_parent={"i2": row(CHILD)},
        queue_starts={"i2": [STARTS]},
        queue_restored={"r1": [{**RESTORED, "scope": "drill.0"}]},
    )
    restored = history("drill.0", E1, **RESTORE, restored_at=250)
    recreated = [topic("drill.0", E2)]
    continuation = find_continuation(catalog, [history(**BACKED), restored], recreated, "incremental")
    assert continuation.restored.restore_id == "r1"
    plan = child(continuation, region(3, epoch=E2), topics=recreated)
    assert [(g.scope, g.epoch, g.to_position) for g in plan.lost] == [("drill.0", E1, None)]
    assert find_continuation(catalog, [history(**BACKED), restored], recreated, "full").restored is None


def test_a_source_without_backups_depends_on_nothing() -> None:
    empty_catalog: Any = Catalog()
    assert find_continuation(empty_catalog, [], [topic()], "auto") == Continuation()


@pytest.mark.parametrize(
    ("tids", "restored", "expected"),
    [([], None, 30), ([20, None], None, 30), ([40], None, 40), ([20], 25, 25), ([28], 25, 28)],
)
def test_the_last_tid_of_a_backup(tids: list[int | None], restored: int | None, expected: int) -> None:
    """The tids of one queue may be lower than those of another queue at the end of the previous backup."""
    plan = SimpleNamespace(snapshot_tid=None, keep=False, restore_id=None, last_tid=30)
    mark = () if restored is None else (3, "r1", restored)
    ranges = [RangeScan("q", "e", "0", 0, 9, 1, 0, tid, tid, 5, *mark) for tid in tids]
    assert last_tid(plan, ranges) == expected  # type: ignore[arg-type]
