"""What the next backup of queues stands on, what it reads, and what it refuses; no broker, no catalog."""

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


def standing(
    parent: Parent = FULL, *starts: Start, open_at: str | None = None, restored: History | None = None
) -> Continuation:
    return Continuation(parent, restored, starts, 50, open_at)


def child(on: Continuation, *regions: RegionState, **changes: Any) -> Any:
    given = {"mode": "incremental", "topics": TOPICS, **changes}
    return Queues("b", "social", on, given["topics"], regions, 5000).child(given["mode"])


def full(
    on: Continuation, *regions: RegionState, told: SnapshotJson | None = None, topics: Any = TOPICS
) -> Any:
    return Queues("b", "social", on, topics, regions, 5000).full(told)


def told(position: int, before: int, **changes: Any) -> SnapshotJson:
    queue = QueueAt(topic="delta.0", partition=0, position=position, max_no_transaction_pos=before)
    return SnapshotJson(format=1, last_tid=40, queues=(queue,), **changes)


def span(start: int, end: int, own_from: int | None = None, rank: int = 0) -> QueueRange:
    return QueueRange("delta.0", E1, "0", start, end, rank, start if own_from is None else own_from)


# --- a backup that stands on another


@pytest.mark.parametrize(
    ("on", "first", "open_at", "end", "tasks"),
    [
        pytest.param(FULL, 4, "f1", 12, ((span(4, 12, 7),),), id="a full with open transactions"),
        pytest.param(FULL, 4, "f1", 7, ((span(4, 7, 7),),), id="the same, when nothing came since"),
        pytest.param(FULL, 4, None, 12, ((span(7, 12),),), id="a full without"),
        pytest.param(CHILD, 4, "i2", 12, ((span(7, 12),),), id="an incremental: the chain has what is open"),
        pytest.param(CHILD, 7, None, 7, (), id="nothing new"),
    ],
)
def test_which_messages_are_read(on: Parent, first: int, open_at: str | None, end: int, tasks: Any) -> None:
    plan = child(standing(on, Start("delta.0", E1, "0", first, 7), open_at=open_at), region(end))
    assert (plan.tasks, plan.open_at, plan.lost) == (tasks, open_at, ())
    assert [(p.start_position, p.end_position) for p in plan.positions] == [(7, end)]


@pytest.mark.parametrize(("mode", "kind"), [("differential", "cumulative"), ("incremental", "differential")])
def test_kinds_in_the_catalog(mode: str, kind: str) -> None:
    plan = child(standing(FULL, Start("delta.0", E1, "0", 7, 7)), region(9), mode=mode)
    assert (plan.kind, plan.level, plan.start_ts, plan.keep) == (kind, 1, 1000, True)


@pytest.mark.parametrize(
    ("on", "first", "open_at", "found", "lost", "said"),
    [
        pytest.param(CHILD, 7, None, {"low": 7}, None, None, id="purged up to what is needed"),
        pytest.param(CHILD, 7, None, {"low": 9}, (7, 9, "purged"), "offsets [7, 9) were", id="purged"),
        pytest.param(FULL, 4, "f1", {"low": 6}, (4, 6, "purged"), "offsets [4, 6) were", id="in front"),
        pytest.param(FULL, 4, None, {"low": 6}, None, None, id="in front, but nothing was open"),
        pytest.param(CHILD, 7, None, {"end": 6}, (7, None, "recreated"), "was reset", id="ends too early"),
        pytest.param(CHILD, 7, None, {"epoch": E2}, (7, None, "recreated"), "was reset", id="recreated"),
    ],
)
def test_what_is_lost(
    on: Parent, first: int, open_at: str | None, found: dict[str, Any], lost: Any, said: str | None
) -> None:
    start, topics = Start("delta.0", E1, "0", first, 7), [topic(epoch=found.get("epoch", E1))]
    plan = child(standing(on, start, open_at=open_at), region(**{"end": 12, **found}), topics=topics)
    gaps = [(g.epoch, g.from_position, g.to_position, g.reason) for g in plan.lost]
    assert gaps == ([(E1, *lost)] if lost else [])
    if said:
        error = needs_full(plan.lost)
        assert "topic delta.0, partition 0" in error.message
        assert said in error.message
        assert "--mode full" in error.hint
        assert error.exit_code == 9


def test_a_queue_that_is_gone_is_a_reset() -> None:
    starts = (Start("delta.0", E1, "0", 7, 7), Start("journal.0", E2, "0", 3, 3))
    plan = child(standing(CHILD, *starts), region(9))
    assert [(g.scope, g.from_position) for g in plan.lost] == [("journal.0", 3)]


def test_new_partitions_are_taken_from_their_beginning_and_it_must_be_there() -> None:
    start = Start("delta.0", E1, "0", 7, 7)
    plan = child(standing(CHILD, start), region(9), region(4, partition=1), topics=[topic(regions=2)])
    assert (plan.lost, plan.new_regions) == ((), 1)
    assert plan.tasks == ((span(7, 9), replace(span(0, 4), region="1")),)
    gone = child(standing(CHILD, start), region(9), region(4, partition=1, low=2))
    assert [(g.region, g.from_position, g.to_position) for g in gone.lost] == [("1", 0, 2)]


def test_behind_a_restore_coverage_begins_with_it() -> None:
    restored = history(**PUT_BACK, restored_at=3_000_000)
    plan = child(standing(CHILD, Start("delta.0", E1, "0", 20, 20), restored=restored), region(25))
    assert (plan.restore_id, plan.start_ts, plan.tasks) == ("r1", 3000, ((span(20, 25),),))


def test_the_end_of_a_transaction_may_stand_anywhere_before_what_is_read() -> None:
    start = Start("delta.0", E1, "0", 700_000, 700_000)
    assert child(standing(CHILD, start), region(700_020)).look_back == ((span(0, 700_000, 700_000),),)
    assert child(standing(CHILD, start), region(700_020, low=9)).look_back == ((span(9, 700_000, 700_000),),)
    assert child(standing(CHILD, start), region(700_020, low=700_000)).look_back == ()


def test_ends_are_looked_for_in_the_history_that_continues_alone() -> None:
    marks = (
        Watermark("delta.0", E1, "0", "r1", 10),
        Watermark("delta.0", E1, "0", "r2", 20),
        Watermark("delta.0", E1, "0", "r3", 31),
        Watermark("delta.0", E1, "1", "r2", 5),
        Watermark("delta.0", E2, "0", "r2", 5),
    )
    on = replace(standing(CHILD, Start("delta.0", E1, "0", 30, 30)), watermarks=marks)
    plan = child(on, region(40))
    assert plan.look_back == ((span(20, 30, 30),),)
    assert plan.watermarks == (("delta.0", E1, "0", "r1"), ("delta.0", E1, "0", "r2"))
    behind = replace(standing(CHILD, Start("delta.0", E1, "0", 20, 20)), watermarks=marks)
    assert child(behind, region(40)).look_back == ()
    assert full(on, region(40), told=told(28, 25)).look_back == ((span(20, 25, 25),),)


def test_what_is_gone_by_now_is_not_looked_for() -> None:
    tasks = ((span(0, 50, 50), replace(span(0, 9, 9), region="1")), (span(50, 60, 60, 1),))
    place = ("delta.0", E1, "0")
    assert from_lows(tasks, {place: 20}) == ((span(20, 50, 50), tasks[0][1]), tasks[1])
    assert from_lows(tasks, {place: 55}) == ((span(50, 50, 50), tasks[0][1]), (span(55, 60, 60, 1),))
    assert from_lows(tasks, {}) == tasks


def test_when_a_restore_that_was_left_is_no_blocker() -> None:
    found = [history(**BACKED), history("journal.0", E2, full_started_at=900), history(epoch=E2)]
    assert resume_limit(found, [topic()]) == 100
    assert resume_limit([history(**BACKED, **PUT_BACK, restored_at=250)], [topic()]) == 250
    assert resume_limit(found, [topic("delta.9")]) == 0


def test_what_is_refused() -> None:
    compacted = topic(**{"cleanup.policy": "compact,delete"})
    for planned in (lambda: child(standing(CHILD), region(9), topics=[compacted]),
                    lambda: full(Continuation(), region(9), topics=[compacted])):  # fmt: skip
        with pytest.raises(Refused, match=r"delta\.0 is compacted"):
            planned()
    # A topic of the engine that is not named, while it is there.
    starts = [Start("delta.0", E1, "0", 7, 7), Start("journal.0", E2, "0", 3, 3)]
    with pytest.raises(UsageProblem, match=r"journal\.0 is a queue of this engine"):
        require_parent_topics(starts, [topic()], ["delta.0", "journal.0"])
    require_parent_topics(starts, [topic()], ["delta.0"])
    with pytest.raises(NeedsFull, match="no backup of social"):
        child(Continuation(), region(9))


# --- a full


def test_a_full_stands_where_its_snapshot_stands_and_keeps_nothing() -> None:
    plan = full(Continuation(), region(12), told=told(7, 5))
    assert [(p.start_position, p.end_position) for p in plan.positions] == [(7, 7)]
    assert (plan.kind, plan.level, plan.parent, plan.start_ts, plan.keep) == ("full", 0, None, None, False)
    assert plan.tasks == ((span(5, 7),),)
    assert (plan.snapshot_tid, plan.open_at, plan.notes) == (40, None, ())


def test_a_full_looks_for_ends_of_transactions_unless_none_is_open_or_the_engine_tells() -> None:
    assert full(Continuation(), region(12), told=told(7, 7)).tasks == ()
    assert full(Continuation(), region(12), told=told(7, 5)).look_back == ((span(0, 5, 5),),)
    assert full(Continuation(), region(12), told=told(7, 5, open_transactions=("t",))).look_back == ()


def test_without_snapshot_json_it_stands_at_the_end() -> None:
    plan = full(Continuation(), region(12, low=3))
    assert [(p.start_position, p.end_position) for p in plan.positions] == [(12, 12)]
    assert plan.tasks == ((span(3, 12),),)
    assert "has applied everything" in plan.notes[0]


def test_without_snapshot_json_it_continues_from_what_the_last_backup_knew() -> None:
    start = Start("delta.0", E1, "0", 4, 7, 49)
    plan = full(standing(CHILD, start, open_at="i2"), region(12))
    assert plan.tasks == ((span(4, 12, 7),),)
    assert (plan.open_at, plan.last_tid, plan.tids) == ("i2", 50, (("delta.0", E1, "0", 49),))
    assert full(standing(CHILD, start), region(12)).tasks == ((span(7, 12),),)


def test_what_a_full_with_snapshot_json_comes_after_says_nothing_of_its_state() -> None:
    plan = full(standing(CHILD, Start("delta.0", E1, "0", 4, 7), open_at="i2"), region(12), told=told(7, 7))
    assert (plan.last_tid, plan.open_at) == (None, None)


def test_a_full_of_a_snapshot_that_nothing_can_continue_from_is_refused() -> None:
    with pytest.raises(NeedsFull, match="offsets below 6 were deleted"):
        full(Continuation(), region(12, low=6), told=told(7, 5))
    assert full(Continuation(), region(12, low=5), told=told(7, 5)).tasks == ((span(5, 7),),)


def test_a_full_records_what_was_lost_and_continues() -> None:
    starts = (Start("delta.0", E1, "0", 7, 7), Start("journal.0", E1, "0", 3, 3))
    on = standing(CHILD, *starts)
    journal = region(1, name="journal.0", epoch=E2)
    plan = full(on, region(12, low=9), journal)
    assert [(g.scope, g.epoch, g.from_position, g.to_position, g.reason, g.bridged) for g in plan.lost] == [
        ("delta.0", E1, 7, 9, "purged", False),
        ("journal.0", E1, 3, None, "recreated", False),
    ]
    assert [(g.from_ts, g.to_ts) for g in plan.lost] == [(2000, 5000)] * 2


def test_a_full_behind_a_restore_has_lost_nothing() -> None:
    restored = history(**PUT_BACK, restored_at=3_000_000)
    on = standing(CHILD, Start("delta.0", E1, "0", 20, 20), restored=restored)
    plan = full(on, region(25, low=22))
    assert (plan.lost, plan.restore_id) == ((), "r1")


# --- which history


def history(name: str = "delta.0", epoch: str = E1, **changes: Any) -> History:
    return History(name, epoch, **changes)


BACKED: dict[str, Any] = {
    "backup_id": "i2", "number": 2, "started_at": 200,
    "full_id": "f1", "full_number": 1, "full_started_at": 100,
}  # fmt: skip
PUT_BACK: dict[str, Any] = {
    "restore_id": "r1", "restored_id": "i2", "restored_full_id": "f1", "whole": True, "restored_tid": 30,
}  # fmt: skip


def behind(found: History, mode: Any) -> bool:
    return (found.continued_by(mode) or ("", ""))[0] == "restore"


def test_the_newest_backup_of_these_queues_is_continued() -> None:
    found = history(**BACKED)
    assert choose_history([found, history("delta.0", E2, **BACKED)], [topic()], "incremental") is found
    assert not behind(found, "incremental")


@pytest.mark.parametrize(
    ("at", "incremental", "differential"), [(50, False, False), (150, False, True), (250, True, True)]
)
def test_a_restore_counts_when_it_came_later(at: int, incremental: bool, differential: bool) -> None:
    found = history(**BACKED, **PUT_BACK, restored_at=at)
    assert behind(found, "incremental") is incremental
    assert behind(found, "differential") is differential


def test_which_history_is_continued() -> None:
    only = history(**PUT_BACK, restored_at=50)
    assert choose_history([only], [topic()], "auto") is only
    assert behind(only, "differential")
    old, both = history(**BACKED), [topic(), topic("delta.1", E2)]
    assert choose_history([old], both, "incremental") is old
    young = history("delta.1", E2, backup_id="i2", number=2, started_at=200)
    assert choose_history([old, young], both, "differential") is old


def test_queues_of_two_histories_are_refused() -> None:
    restored = history("delta.1", E2, **PUT_BACK, restored_at=250)
    with pytest.raises(NeedsFull, match="have different histories"):
        choose_history([history(**BACKED), restored], [topic(), topic("delta.1", E2)], "incremental")


class Catalog:
    """What a reader answers, by query and its one parameter."""

    def __init__(self, **answers: dict[str, Any]) -> None:
        self.answers = answers

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        (key,) = parameters.values()
        found = self.answers.get(name, {}).get(key, [])
        return found if isinstance(found, list) else [found]

    def one(self, name: str, **parameters: Any) -> dict[str, Any] | None:
        return next(iter(self.rows(name, **parameters)), None)


def row(parent: Parent, **changes: Any) -> dict[str, Any]:
    found = {name: getattr(parent, name) for name in Parent.__match_args__}
    own = {"kind": "differential" if parent.level else "full", "last_tid": 30, "open_transactions": 0}
    return found | own | {"reason": None} | changes


STARTS: dict[str, Any] = {
    "scope": "delta.0", "epoch": E1, "region": "0", "end_position": 7,
    "no_transaction_position": 4, "last_tid": 29, "leader_epoch": 3,
}  # fmt: skip
RESTORED = {"scope": "delta.0", "epoch": E1, "region": "0", "base_position": 10, "end_position": 20}


def test_where_the_parent_ended_is_read() -> None:
    catalog: Any = Catalog(
        queue_parent={"i2": row(CHILD, open_transactions=1)}, queue_starts={"i2": [STARTS]}
    )
    found = find_continuation(catalog, [history(**BACKED)], [topic()], "incremental")
    assert (found.parent, found.open_at, found.last_tid) == (CHILD, "i2", 30)
    assert found.starts == (Start("delta.0", E1, "0", 4, 7, 29, 3),)


def test_a_differential_depends_on_the_newest_full() -> None:
    catalog: Any = Catalog(queue_parent={"f1": row(FULL)}, queue_starts={"f1": [STARTS]})
    found = find_continuation(catalog, [history(**BACKED)], [topic()], "differential")
    assert (found.parent, found.open_at, found.start_ts) == (FULL, None, 1000)


@pytest.mark.parametrize(
    ("mode", "of_parent", "of_restore", "parent", "start"),
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
def test_behind_a_restore_it_depends_on_what_was_restored(
    mode: Any, of_parent: dict[str, Any], of_restore: dict[str, Any], parent: Parent, start: int
) -> None:
    catalog: Any = Catalog(
        queue_parent={"i2": row(CHILD, **of_parent), "f1": row(FULL, last_tid=5)},
        queue_restored={"r1": [RESTORED]},
    )
    put_back = history(**BACKED, **PUT_BACK | of_restore, restored_at=250)
    found = find_continuation(catalog, [put_back], [topic()], mode)
    assert (found.parent, found.last_tid, found.open_at) == (parent, 30, None)
    assert found.starts == (Start("delta.0", E1, "0", start, start),)
    assert bool(found.notes) is bool(of_parent)


def test_a_full_that_cannot_be_used_asks_for_a_new_one() -> None:
    catalog: Any = Catalog(
        queue_parent={"i2": row(CHILD, reason="deleted"), "f1": row(FULL, reason="deleted")},
        queue_restored={"r1": [RESTORED]},
    )
    with pytest.raises(NeedsFull, match="f1, which cannot be continued: it is deleted"):
        find_continuation(catalog, [history(**BACKED, **PUT_BACK, restored_at=250)], [topic()], "incremental")


def test_queues_that_are_unknown_have_lost_all_that_the_newest_backup_knew() -> None:
    catalog: Any = Catalog(queue_parent={"i2": row(CHILD)}, queue_starts={"i2": [STARTS]})
    made_again = [topic(epoch=E2)]
    found = find_continuation(catalog, [history(**BACKED)], made_again, "incremental")
    plan = child(found, region(3, epoch=E2), topics=made_again)
    assert [(g.epoch, g.from_position, g.to_position) for g in plan.lost] == [(E1, 7, None)]


def test_queues_that_were_restored_into_and_recreated_have_lost_what_was_restored() -> None:
    """Also while the queues are there that the newest backup is of, and that have other names."""
    catalog: Any = Catalog(
        queue_parent={"i2": row(CHILD)},
        queue_starts={"i2": [STARTS]},
        queue_restored={"r1": [{**RESTORED, "scope": "drill.0"}]},
    )
    put_back = history("drill.0", E1, **PUT_BACK, restored_at=250)
    made_again = [topic("drill.0", E2)]
    found = find_continuation(catalog, [history(**BACKED), put_back], made_again, "incremental")
    assert found.restored.restore_id == "r1"
    plan = child(found, region(3, epoch=E2), topics=made_again)
    assert [(g.scope, g.epoch, g.to_position) for g in plan.lost] == [("drill.0", E1, None)]
    assert find_continuation(catalog, [history(**BACKED), put_back], made_again, "full").restored is None


def test_a_source_without_backups_depends_on_nothing() -> None:
    nothing: Any = Catalog()
    assert find_continuation(nothing, [], [topic()], "auto") == Continuation()


@pytest.mark.parametrize(
    ("seen", "restored", "wanted"),
    [([], None, 30), ([20, None], None, 30), ([40], None, 40), ([20], 25, 25), ([28], 25, 28)],
)
def test_up_to_which_tid_a_backup_brings_all_back(
    seen: list[int | None], restored: int | None, wanted: int
) -> None:
    """Tids of one queue may be less than what another queue had when the backup before ended."""
    plan = SimpleNamespace(snapshot_tid=None, keep=False, restore_id=None, last_tid=30)
    mark = () if restored is None else (3, "r1", restored)
    ranges = [RangeScan("q", "e", "0", 0, 9, 1, 0, tid, tid, 5, *mark) for tid in seen]
    assert last_tid(plan, ranges) == wanted  # type: ignore[arg-type]
