"""The plan of a restore of topics: what it reads and what blocks it, also between two restore points."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.catalogs import EPOCH
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import filled

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.plan.topics.request import (
    RestoreRequest,
    only_source,
    plan_rest,
    plan_restore,
    refuse_unfinished,
)
from lakebackup.plan.topics.restore import PartRead, RestorePlan, between, require_restorable
from lakebackup.rows.backups import DataFile, Floor, Removal, Scope
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.rows.topics import IN_PART, Translation
from lakebackup.rows.upkeep import Restore
from lakebackup.rules.topic_settings import TopicSettings
from lakebackup.store.reader import CatalogReader

COMPACT = TopicSettings({}, {"broker": {"cleanup.policy": "compact"}}).dump()


def part(start: int, end: int, entries: int | None, **changes: Any) -> PartRead:
    part_read = PartRead("t", "0", "b2", start, end, entries, min_ts=1_500, before_ts=1_000, after_ts=2_000)
    return replace(part_read, **changes)


def reasons(*read: PartRead, to_ts: int = 1_700, compacted: bool = True) -> list[tuple[str, int | None]]:
    obstacles, notes = between(read, ["t"] if compacted else [], to_ts)
    assert not notes
    return [(o.reason, o.after_ts) for o in obstacles]


def test_a_compacted_topic_is_exact_where_no_offset_lacks_its_record() -> None:
    assert reasons(part(10, 20, 10)) == []
    assert reasons(part(20, 20, None)) == []  # nothing came in
    assert reasons(part(10, 20, 9)) == [("compacted", 2_000)]
    assert reasons(part(10, 20, None)) == [("compacted", 2_000)]
    assert reasons(part(10, 20, 9), compacted=False) == []
    (obstacle,), _ = between([part(10, 20, 10), part(0, 20, 8, region="1")], ["t"], 1_700)
    assert (obstacle.region, obstacle.before_ts, obstacle.after_ts) == ("1", 1_000, 2_000)
    assert "12 offsets from 0 to 20 had no record any more when backup b2 read them" in obstacle.detail


def test_before_the_first_backup_a_topic_was_empty_only_if_it_was_read_from_its_start() -> None:
    first = {"before_ts": None}
    assert reasons(part(7, 20, 13, **first), to_ts=1_400, compacted=False) == [("older", 1_500)]
    assert reasons(part(7, 7, None, min_ts=None, **first), to_ts=1_400, compacted=False) == [("older", 2_000)]
    assert reasons(part(7, 20, 13, **first), to_ts=1_500, compacted=False) == []  # a record has that time
    assert reasons(part(7, 20, 13), to_ts=1_400, compacted=False) == []  # an earlier backup covers that time
    # The partitions of a topic count together.
    late, early = part(7, 20, 13, **first), part(0, 20, 20, region="1", min_ts=1_200, **first)
    assert reasons(late, early, to_ts=1_400, compacted=False) == []
    obstacles, notes = between([part(0, 0, None, min_ts=None, **first)], [], 1_400)
    assert obstacles == []
    assert "topic t was empty at 1970-01-01T00:00:01.400Z: no record is restored" in notes[0]
    assert between([part(0, 20, 19, **first)], ["t"], 1_400)[0][0].reason == "compacted"


def test_a_restore_to_before_the_first_record_needs_allow_empty(
    tmp_path: Path,
) -> None:
    backups = MadeBackups(tmp_path)
    backups.backup([[Record(0, 0, ts=500), Record(0, 1, ts=400)]])
    request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders",), to_ts=399)
    plan = plan_restore(request, backups.planner())
    with pytest.raises(
        Refused, match=r"topic orders: it held nothing then.*after: 1970-01-01T00:00:00\.400Z"
    ) as refused:
        require_restorable(plan, replace(request, allow_gaps=True, approximate=True).accepted)
    assert "--allow-empty" in refused.value.hint
    require_restorable(plan, replace(request, allow_empty=True).accepted)
    assert not plan_restore(replace(request, to_ts=400), backups.planner()).obstacles


def test_a_topic_that_the_next_backup_does_not_hold_is_refused_as_deleted(tmp_path: Path) -> None:
    """The records after its last backup are unknown, and so is the time of its deletion."""
    backups = MadeBackups(tmp_path)
    backups.backup([[Record(0, 0, ts=500)]])
    next_id = backups.backup([[Record(0, 0, ts=1_500)]])
    backups.change("scopes", lambda row: replace(row, scope="users") if row.backup_id == next_id else row)
    for to_ts in (1_001, 2_000, 9_000):
        request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders",), to_ts=to_ts)
        with pytest.raises(
            Refused, match=f"orders is covered until 1970-01-01T00:00:01.000Z, and .*{next_id}.* was deleted"
        ):
            plan_restore(request, backups.planner())


def two_generations(folder: Path) -> CatalogReader:
    backups = MadeBackups(folder)
    backups.backup([[Record(0, n, ts=100 * n) for n in range(4)]])
    # The second generation is read from the start again. Only offsets 4 and 5 have a record left.
    backups.backup([[Record(0, n, ts=1_000 + n) for n in (4, 5)]], full=True, low={0: 0}, generation=1)
    rows = backups._rows["scopes"]
    backups._rows["scopes"] = [replace(r, settings=COMPACT) for r in rows if isinstance(r, Scope)]
    return backups.planner()


def plan_between(folder: Path, **options: Any) -> RestorePlan:
    reader = two_generations(folder)
    return plan_restore(RestoreRequest(str(folder), "dir:out", topics=("orders",), **options), reader)


def test_a_restore_between_two_generations_needs_approximate(tmp_path: Path) -> None:
    """Such a restore once brought back 5 of 20 keys, and its exit code was 0."""
    plan = plan_between(tmp_path, to_ts=1_002)
    with pytest.raises(
        Refused, match=r"before: 1970-01-01T00:00:01.*, after: 1970-01-01T00:00:02"
    ) as refused:
        require_restorable(plan, {"gap", "empty"})
    assert "--approximate" in refused.value.hint
    require_restorable(plan, {"compacted"})


@pytest.mark.parametrize("to_ts", [1_000, 2_000, None])
def test_the_end_of_a_backup_is_exact(tmp_path: Path, to_ts: int | None) -> None:
    assert plan_between(tmp_path, to_ts=to_ts).obstacles == ()


def test_the_coverage_view_agrees_with_the_plan_at_every_time(tmp_path: Path) -> None:
    reader = two_generations(tmp_path)
    coverage = reader.select("SELECT status, COALESCE(from_ts, -1) AS after, to_ts FROM coverage").read_all()
    spans = [(r["after"], r["to_ts"]) for r in coverage.to_pylist() if r["status"] == "restorable"]
    for to_ts in (0, 500, 1_000, 1_001, 1_500, 1_999, 2_000):
        request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders",), to_ts=to_ts)
        refused = bool(plan_restore(request, reader).obstacles)
        assert refused == (not any(from_ts < to_ts <= until for from_ts, until in spans)), to_ts


def test_a_completely_pruned_backup_is_not_restored_as_empty(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path)
    names = [backups.backup([[Record(0, n, ts=1000 * n + 500)]]) for n in range(2)]
    (pruned_file, _) = (row for row in backups._rows["files"] if isinstance(row, DataFile))
    removal = {
        "destination": pruned_file.destination,
        "path": pruned_file.path,
        "backup_id": pruned_file.backup_id,
    }
    backups.add(filled(Removal, prune_id="p1", **removal), filled(Floor, prune_id="p1", low_position=1))
    backups.flush()

    def plan_of(backup: str) -> RestorePlan:
        request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders",), backup=backup)
        return plan_restore(request, CatalogReader(str(tmp_path)))

    (obstacle,) = plan_of(names[0]).obstacles
    assert (obstacle.reason, obstacle.region) == ("pruned", "0")
    assert obstacle.detail == "what it held then was pruned; it can be restored from offset 1 on"
    plan = plan_of(names[1])
    assert plan.obstacles == ()
    assert [part.files for topic in plan.topics for part in topic.parts] == [1]


def test_an_unusable_newer_backup_is_named(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path)
    first, lost, last = (backups.backup([[Record(0, n)]]) for n in range(3))
    request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders",))
    assert plan_restore(request, backups.planner()).notes == ()
    backups._rows["backups"][1] = replace(backups._rows["backups"][1], state="unconfirmed")
    backups.add()  # drops the reader of the earlier rows
    plan = plan_restore(request, backups.planner())
    assert [topic.backup_id for topic in plan.topics] == [first]
    assert [note.split(" of ")[0] for note in plan.notes] == [f"backup {last}", f"backup {lost}"]
    assert "is passed over: it cannot be restored" in plan.notes[0]
    assert plan_restore(replace(request, to_ts=1000), backups.planner()).notes == ()


@pytest.mark.parametrize("stay", [1_000, 1_001])
def test_a_continued_compacted_topic_lacks_no_deletions(tmp_path: Path, stay: int) -> None:
    """The second generation began 1000 ms after the restored point: a tombstone in between may be gone."""
    reader = two_generations(tmp_path)
    plan = plan_restore(RestoreRequest(str(tmp_path), "kafka://b:1", topics=("orders",)), reader)
    (topic,) = plan.topics
    settings = TopicSettings({"cleanup.policy": "compact", "delete.retention.ms": str(stay)})
    plan = replace(plan, topics=(replace(topic, settings=settings),))
    columns = {"scope": "orders", "epoch": EPOCH, "region": "0", "target_epoch": "id-1", "to_position": 4}
    row = filled(Translation, source="prod", cluster="c", restore_id="r1", at=1, **columns)
    translations = pa.Table.from_pylist([as_row(row)], ARROW_SCHEMAS["translations"])
    reader = reader.with_rows("translations", translations)
    if stay > 1_000:
        assert plan_rest(plan, reader, "c", {"orders": "id-1"}, None).until == {("orders", "0"): 4}
        return
    with pytest.raises(Refused, match="Topic orders may keep keys that were deleted"):
        plan_rest(plan, reader, "c", {"orders": "id-1"}, None)
    plain = replace(plan, topics=(replace(topic, settings=TopicSettings({})),))
    assert plan_rest(plain, reader, "c", {"orders": "id-1"}, None).until == {("orders", "0"): 4}


def test_a_continued_restore_has_no_gap(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path)
    backups.backup([[Record(0, 1)]])
    reader = backups.planner()
    plan = plan_restore(RestoreRequest(str(tmp_path), "kafka://b:1", topics=("orders",)), reader)
    columns = {"scope": "orders", "epoch": EPOCH, "region": "0", "target_epoch": "id-1", "to_position": 1}

    def continued_plan(to_ts: int | None = None, **changes: Any) -> Any:
        row = filled(Translation, source="prod", cluster="c", restore_id="r1", at=1, to_ts=to_ts, **columns)
        translations = pa.Table.from_pylist([as_row(row)], ARROW_SCHEMAS["translations"])
        restored = reader.with_rows("translations", translations)
        return plan_rest(replace(plan, **changes), restored, "c", {"orders": "id-1"}, None)

    assert continued_plan().until == {("orders", "0"): 1}
    with pytest.raises(Refused, match="restored in part: some records were left out"):
        continued_plan(to_ts=IN_PART)
    with pytest.raises(Refused, match=r"restored to 2020.*: records after that were left out"):
        continued_plan(to_ts=1_600_000_000_000)
    with pytest.raises(Refused, match="--from-time would leave out what lies between"):
        continued_plan(from_ts=5)


def test_an_unfinished_restore_is_not_added_to(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path)
    backups.backup([[Record(0, 1)]])
    target = {"cluster": "c", "topics": {"orders": "id-1"}}
    backups.add(filled(Restore, restore_id="r1", at=1, state="running", detail=json.dumps({"into": target})))
    reader = backups.planner()
    plan = plan_restore(RestoreRequest(str(tmp_path), "kafka://b:1", topics=("orders",)), reader)
    with pytest.raises(Refused, match="Restore r1 into topic orders did not end"):
        refuse_unfinished(plan, reader, "c", {"orders": "id-1"}, None)
    refuse_unfinished(plan, reader, "c", {"orders": "id-1"}, "r1")  # r1 itself is resumed
    refuse_unfinished(plan, reader, "c", {"orders": "id-2"}, None)  # deleted and created again
    refuse_unfinished(plan, reader, "d", {"orders": "id-1"}, None)


def test_an_unknown_topic_is_named_with_similar_ones(tmp_path: Path) -> None:
    """The restore points of other topics are computed only when a name is unknown."""
    backups = MadeBackups(tmp_path)
    backups.backup([[Record(0, 1)]])
    reader = backups.planner()
    request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders", "order"))
    with pytest.raises(NotFound, match="'order' does not exist") as refused:
        plan_restore(request, reader)
    assert "orders" in refused.value.hint
    assert reader.first_row("list_sources") == {"source": "prod", "source_kind": "kafka"}
    assert plan_restore(replace(request, topics=("orders",)), reader).files == 1


def test_only_sources_with_topics_count_when_no_source_is_named(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path)
    for source in ("prod", "db"):
        backups.backup([[Record(0, 1)]], full=True, source=source)
    with pytest.raises(UsageProblem, match="several sources: db, prod"):
        only_source(backups.planner())
    backups.change("backups", lambda row: replace(row, source_kind="snapshot") if row.source == "db" else row)
    assert only_source(backups.planner()) == "prod"


def test_the_digest_tells_restores_apart() -> None:
    request = RestoreRequest("/backups", "dir:out", topics=("orders",))
    changes: dict[str, Any] = {
        "target": "dir:other", "topics": ("users",), "patterns": ("o.*",), "maps": {"orders": "o"},
        "to_ts": 1, "from_ts": 1, "select": "SELECT path FROM files", "partial": True, "append": True,
        "allow_gaps": True, "approximate": True, "allow_empty": True, "continued": True, "repartition": True,
        "partitions": 2, "backup": "b",
    }  # fmt: skip
    digests = {replace(request, **{name: value}).digest("prod") for name, value in changes.items()}
    assert len(digests | {request.digest("prod"), request.digest("test")}) == len(changes) + 2
    same_restore = replace(
        request, destination="/mnt/backups", kafka={"sasl.password": "x"}, lease_ttl_s=5, remote="r"
    )
    assert same_restore.digest("prod") == request.digest("prod")
