"""What a restore would read and what stands against it, also at a time between two restore points."""

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
    made = PartRead("t", "0", "b2", start, end, entries, min_ts=1_500, before_ts=1_000, after_ts=2_000)
    return replace(made, **changes)


def reasons(*read: PartRead, at: int = 1_700, compacted: bool = True) -> list[tuple[str, int | None]]:
    obstacles, notes = between(read, ["t"] if compacted else [], at)
    assert not notes
    return [(o.reason, o.after_ts) for o in obstacles]


def test_a_compacted_topic_is_exact_where_no_offset_lacks_its_record() -> None:
    assert reasons(part(10, 20, 10)) == []
    assert reasons(part(20, 20, None)) == []  # nothing came in
    assert reasons(part(10, 20, 9)) == [("compacted", 2_000)]
    assert reasons(part(10, 20, None)) == [("compacted", 2_000)]
    assert reasons(part(10, 20, 9), compacted=False) == []
    (stands,), _ = between([part(10, 20, 10), part(0, 20, 8, region="1")], ["t"], 1_700)
    assert (stands.region, stands.before_ts, stands.after_ts) == ("1", 1_000, 2_000)
    assert "12 offsets from 0 to 20 had no record any more when backup b2 read them" in stands.detail


def test_before_the_first_backup_a_topic_was_empty_only_if_it_was_read_from_its_start() -> None:
    first = {"before_ts": None}
    assert reasons(part(7, 20, 13, **first), at=1_400, compacted=False) == [("older", 1_500)]
    assert reasons(part(7, 7, None, min_ts=None, **first), at=1_400, compacted=False) == [("older", 2_000)]
    assert reasons(part(7, 20, 13, **first), at=1_500, compacted=False) == []  # a record is as old
    assert reasons(part(7, 20, 13), at=1_400, compacted=False) == []  # a backup before answers for it
    # A topic is looked at as a whole.
    late, early = part(7, 20, 13, **first), part(0, 20, 20, region="1", min_ts=1_200, **first)
    assert reasons(late, early, at=1_400, compacted=False) == []
    obstacles, notes = between([part(0, 0, None, min_ts=None, **first)], [], 1_400)
    assert obstacles == []
    assert "topic t was empty at 1970-01-01T00:00:01.400Z: no record is restored" in notes[0]
    assert between([part(0, 20, 19, **first)], ["t"], 1_400)[0][0].reason == "compacted"


def test_before_its_first_record_a_topic_is_restored_as_empty_only_when_that_is_accepted(
    tmp_path: Path,
) -> None:
    made = MadeBackups(tmp_path)
    made.backup([[Record(0, 0, ts=500), Record(0, 1, ts=400)]])
    request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders",), to_ts=399)
    plan = plan_restore(request, made.planner())
    with pytest.raises(
        Refused, match=r"topic orders: it held nothing then.*after: 1970-01-01T00:00:00\.400Z"
    ) as refused:
        require_restorable(plan, replace(request, allow_gaps=True, approximate=True).accepted)
    assert "--allow-empty" in refused.value.hint
    require_restorable(plan, replace(request, allow_empty=True).accepted)
    assert not plan_restore(replace(request, to_ts=400), made.planner()).obstacles


def test_a_topic_that_the_next_backup_does_not_hold_is_refused_as_deleted(tmp_path: Path) -> None:
    """Neither what came in after its last backup nor when it was deleted is known."""
    made = MadeBackups(tmp_path)
    made.backup([[Record(0, 0, ts=500)]])
    gone = made.backup([[Record(0, 0, ts=1_500)]])
    made.change("scopes", lambda row: replace(row, scope="users") if row.backup_id == gone else row)
    for to_ts in (1_001, 2_000, 9_000):
        request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders",), to_ts=to_ts)
        with pytest.raises(
            Refused, match=f"orders is covered until 1970-01-01T00:00:01.000Z, and .*{gone}.* was deleted"
        ):
            plan_restore(request, made.planner())


def two_generations(folder: Path) -> CatalogReader:
    made = MadeBackups(folder)
    made.backup([[Record(0, n, ts=100 * n) for n in range(4)]])
    # Read from the start again: of the keys of offsets 0 to 5 only the last two are left.
    made.backup([[Record(0, n, ts=1_000 + n) for n in (4, 5)]], full=True, low={0: 0}, generation=1)
    rows = made._rows["scopes"]
    made._rows["scopes"] = [replace(r, settings=COMPACT) for r in rows if isinstance(r, Scope)]
    return made.planner()


def planned(folder: Path, **asked: Any) -> RestorePlan:
    reader = two_generations(folder)
    return plan_restore(RestoreRequest(str(folder), "dir:out", topics=("orders",), **asked), reader)


def test_between_two_generations_a_restore_is_refused_or_asked_for_as_approximate(tmp_path: Path) -> None:
    """5 of 20 keys came back, and the exit code was 0."""
    plan = planned(tmp_path, to_ts=1_002)
    with pytest.raises(
        Refused, match=r"before: 1970-01-01T00:00:01.*, after: 1970-01-01T00:00:02"
    ) as refused:
        require_restorable(plan, {"gap", "empty"})
    assert "--approximate" in refused.value.hint
    require_restorable(plan, {"compacted"})


@pytest.mark.parametrize("to_ts", [1_000, 2_000, None])
def test_the_end_of_a_backup_is_exact(tmp_path: Path, to_ts: int | None) -> None:
    assert planned(tmp_path, to_ts=to_ts).obstacles == ()


def test_the_view_says_the_same_of_every_time(tmp_path: Path) -> None:
    reader = two_generations(tmp_path)
    found = reader.select("SELECT status, COALESCE(from_ts, -1) AS after, to_ts FROM coverage").read_all()
    held = [(r["after"], r["to_ts"]) for r in found.to_pylist() if r["status"] == "restorable"]
    for to_ts in (0, 500, 1_000, 1_001, 1_500, 1_999, 2_000):
        request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders",), to_ts=to_ts)
        refused = bool(plan_restore(request, reader).obstacles)
        assert refused == (not any(after < to_ts <= until for after, until in held)), to_ts


def test_a_backup_of_which_all_was_pruned_is_not_restored_as_if_it_held_nothing(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path)
    names = [made.backup([[Record(0, n, ts=1000 * n + 500)]]) for n in range(2)]
    (gone, _) = (row for row in made._rows["files"] if isinstance(row, DataFile))
    removal = {"destination": gone.destination, "path": gone.path, "backup_id": gone.backup_id}
    made.add(filled(Removal, prune_id="p1", **removal), filled(Floor, prune_id="p1", low_position=1))
    made.flush()

    def of(backup: str) -> RestorePlan:
        request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders",), backup=backup)
        return plan_restore(request, CatalogReader(str(tmp_path)))

    (stands,) = of(names[0]).obstacles
    assert (stands.reason, stands.region) == ("pruned", "0")
    assert stands.detail == "what it held then was pruned; it can be restored from offset 1 on"
    plan = of(names[1])
    assert plan.obstacles == ()
    assert [part.files for topic in plan.topics for part in topic.parts] == [1]


def test_a_newer_backup_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path)
    first, lost, last = (made.backup([[Record(0, n)]]) for n in range(3))
    request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders",))
    assert plan_restore(request, made.planner()).notes == ()
    made._rows["backups"][1] = replace(made._rows["backups"][1], state="unconfirmed")
    made.add()  # the reader is of the rows before
    plan = plan_restore(request, made.planner())
    assert [topic.backup_id for topic in plan.topics] == [first]
    assert [note.split(" of ")[0] for note in plan.notes] == [f"backup {last}", f"backup {lost}"]
    assert "is passed over: it cannot be restored" in plan.notes[0]
    assert plan_restore(replace(request, to_ts=1000), made.planner()).notes == ()


@pytest.mark.parametrize("stay", [1_000, 1_001])
def test_what_continues_a_compacted_topic_does_not_lack_deletions(tmp_path: Path, stay: int) -> None:
    """The second generation began 1000 ms after what was restored: a tombstone in between may be gone."""
    reader = two_generations(tmp_path)
    plan = plan_restore(RestoreRequest(str(tmp_path), "kafka://b:1", topics=("orders",)), reader)
    (topic,) = plan.topics
    settings = TopicSettings({"cleanup.policy": "compact", "delete.retention.ms": str(stay)})
    plan = replace(plan, topics=(replace(topic, settings=settings),))
    there = {"scope": "orders", "epoch": EPOCH, "region": "0", "target_epoch": "id-1", "to_position": 4}
    row = filled(Translation, source="prod", cluster="c", restore_id="r1", at=1, **there)
    reader.give("translations", pa.Table.from_pylist([as_row(row)], ARROW_SCHEMAS["translations"]))
    if stay > 1_000:
        assert plan_rest(plan, "c", {"orders": "id-1"}, None).until == {("orders", "0"): 4}
        return
    with pytest.raises(Refused, match="Topic orders may keep keys that were deleted"):
        plan_rest(plan, "c", {"orders": "id-1"}, None)
    plain = replace(plan, topics=(replace(topic, settings=TopicSettings({})),))
    assert plan_rest(plain, "c", {"orders": "id-1"}, None).until == {("orders", "0"): 4}


def test_what_is_continued_has_no_hole(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path)
    made.backup([[Record(0, 1)]])
    reader = made.planner()
    plan = plan_restore(RestoreRequest(str(tmp_path), "kafka://b:1", topics=("orders",)), reader)
    there = {"scope": "orders", "epoch": EPOCH, "region": "0", "target_epoch": "id-1", "to_position": 1}

    def rest(to_ts: int | None = None, **changes: Any) -> Any:
        row = filled(Translation, source="prod", cluster="c", restore_id="r1", at=1, to_ts=to_ts, **there)
        reader.give("translations", pa.Table.from_pylist([as_row(row)], ARROW_SCHEMAS["translations"]))
        return plan_rest(replace(plan, **changes), "c", {"orders": "id-1"}, None)

    assert rest().until == {("orders", "0"): 1}
    with pytest.raises(Refused, match="restored in part: some records were left out"):
        rest(to_ts=IN_PART)
    with pytest.raises(Refused, match=r"restored to 2020.*: records after that were left out"):
        rest(to_ts=1_600_000_000_000)
    with pytest.raises(Refused, match="--from-time would leave out what lies between"):
        rest(from_ts=5)


def test_what_is_added_to_a_restore_that_did_not_end_would_come_twice(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path)
    made.backup([[Record(0, 1)]])
    into = {"cluster": "c", "topics": {"orders": "id-1"}}
    made.add(filled(Restore, restore_id="r1", at=1, state="running", detail=json.dumps({"into": into})))
    plan = plan_restore(RestoreRequest(str(tmp_path), "kafka://b:1", topics=("orders",)), made.planner())
    with pytest.raises(Refused, match="Restore r1 into topic orders did not end"):
        refuse_unfinished(plan, "c", {"orders": "id-1"}, None)
    refuse_unfinished(plan, "c", {"orders": "id-1"}, "r1")  # the one that is resumed
    refuse_unfinished(plan, "c", {"orders": "id-2"}, None)  # deleted and created again
    refuse_unfinished(plan, "d", {"orders": "id-1"}, None)


def test_a_topic_that_is_not_there_is_named_beside_what_is(tmp_path: Path) -> None:
    """Only the restore points of the topics that are named are computed, until a name is unknown."""
    made = MadeBackups(tmp_path)
    made.backup([[Record(0, 1)]])
    reader = made.planner()
    request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders", "order"))
    with pytest.raises(NotFound, match="'order' does not exist") as found:
        plan_restore(request, reader)
    assert "orders" in found.value.hint
    assert reader.one("list_sources") == {"source": "prod", "source_kind": "kafka"}
    assert plan_restore(replace(request, topics=("orders",)), reader).files == 1


def test_only_sources_with_topics_count_where_none_is_named(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path)
    for source in ("prod", "db"):
        made.backup([[Record(0, 1)]], full=True, source=source)
    with pytest.raises(UsageProblem, match="several sources: db, prod"):
        only_source(made.planner())
    made.change("backups", lambda one: replace(one, source_kind="snapshot") if one.source == "db" else one)
    assert only_source(made.planner()) == "prod"


def test_what_makes_two_requests_the_same_restore() -> None:
    one = RestoreRequest("/backups", "dir:out", topics=("orders",))
    others: dict[str, Any] = {
        "target": "dir:other", "topics": ("users",), "patterns": ("o.*",), "maps": {"orders": "o"},
        "to_ts": 1, "from_ts": 1, "select": "SELECT path FROM files", "partial": True, "append": True,
        "allow_gaps": True, "approximate": True, "allow_empty": True, "continued": True, "repartition": True,
        "partitions": 2, "backup": "b",
    }  # fmt: skip
    digests = {replace(one, **{name: value}).digest("prod") for name, value in others.items()}
    assert len(digests | {one.digest("prod"), one.digest("test")}) == len(others) + 2
    same = replace(one, destination="/mnt/backups", kafka={"sasl.password": "x"}, lease_ttl_s=5, remote="r")
    assert same.digest("prod") == one.digest("prod")
