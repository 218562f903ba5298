"""Restores of an engine against a real broker: which messages come back, in which order, behind what; and
that one that was cut off anywhere goes on without a message that is there twice."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support import kafka_truth as truth
from tests.support.chosen import chosen
from tests.support.graph_lab import Graph, GraphLab
from tests.support.graph_story import some_writes
from tests.support.graph_writers import open_at
from tests.support.runs import now_ms

from lakebackup.errors import Damaged, Refused, UsageProblem
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.rules.times import format_ts, parse_time
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.client.produce import RestoreProducer
from lakebackup_jobs.lifecycle.deletion.lock import RestoreLog
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.queues.restore import job as restore_queue
from lakebackup_jobs.queues.restore import prepare as preparing
from lakebackup_jobs.queues.restore import replay_task, scan_task
from lakebackup_jobs.queues.restore import splits as queue_splits
from lakebackup_jobs.queues.restore.engine_folder import EngineFolder
from lakebackup_jobs.queues.restore.restore_state import RestoreState
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.targets.topics import group_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.graph_writers import Op, Place, Queues

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Messages = dict["Place", list[tuple[int, truth.Record]]]
Plant = Callable[[pytest.MonkeyPatch], None]


class Killed(BaseException):
    """What no code of ours catches."""


def held(lab: GraphLab, queues: Queues) -> Messages:
    """What each partition holds, with offsets."""
    found: Messages = {place: [] for place in queues.places}
    for topic in queues.topics:
        for offset, record in truth.read(lab.bootstrap, topic):
            found[topic, record.partition].append((offset, record))
    return {place: sorted(records, key=lambda pair: pair[0]) for place, records in found.items()}


def header(record: truth.Record, name: str) -> str | None:
    value = dict(record.headers).get(name)
    return None if value is None else value.decode()


def since_full(lab: GraphLab, source: Messages, full_id: str, ops: Sequence[Op], first_tid: int) -> Messages:
    """What follows a full in each partition, behind what was open in front of it."""
    rows = lab.rows(f"SELECT scope, region, end_position FROM positions WHERE backup_id = '{full_id}'")
    ends = {(row["scope"], int(row["region"])): row["end_position"] for row in rows}
    unended = open_at(ops, first_tid)
    return {
        place: [
            (offset, record)
            for offset, record in records
            if offset >= ends[place] or header(record, "transaction") in unended
        ]
        for place, records in source.items()
    }


def upto(messages: Messages, ops: Sequence[Op], tid: int, *, keep_open: bool = False) -> Messages:
    leave = set() if keep_open else open_at(ops, tid)
    return {
        place: [
            (offset, record)
            for offset, record in records
            if int(header(record, "tid") or 0) <= tid and header(record, "transaction") not in leave
        ]
        for place, records in messages.items()
    }


def require_same(
    found: Messages, wanted: Messages, names: Mapping[str, str], watermark: Mapping[str, Any]
) -> None:
    """One watermark, then the same messages in the same order."""
    for (topic, partition), records in wanted.items():
        (_, first), *rest = found[names[topic], partition]
        assert (first.key, dict(first.headers)) == (
            None,
            {"lakebackup-watermark": b"1", "kind": b"watermark"},
        )
        said = json.loads(first.value or b"")
        assert {name: said[name] for name in watermark} == watermark
        assert [record for _, record in rest] == [record for _, record in records], (topic, partition)


def maps(graph: Graph, queues: Queues) -> dict[str, str]:
    return dict(zip(graph.queues.topics, queues.topics, strict=True))


def strictly_later() -> Callable[[], int]:
    """A clock that never shows the same millisecond twice: times tell its messages apart."""
    shown = 0

    def now() -> int:
        nonlocal shown
        before = shown
        while shown <= before:
            shown = now_ms()
        return shown

    return now


def lived(lab: GraphLab) -> tuple[Graph, list[dict[str, Any]]]:
    """An engine with a full and two incrementals, a schema change in between, and transactions over all."""
    dice = random.Random(3)
    graph = lab.begin(strictly_later())
    some_writes(graph.writers, dice, 40)
    full = lab.full(graph, until=30)
    some_writes(graph.writers, dice, 40)
    one = lab.backup(graph, "incremental")
    graph.writers.change_schema(("city", "name", "age"))
    some_writes(graph.writers, dice, 40)
    return graph, [full, one, lab.backup(graph, "incremental")]


@dataclass(frozen=True)
class Lived:
    """What `lived` left: its engine, and the destination with its backups."""

    lab: GraphLab
    graph: Graph
    made: list[dict[str, Any]]

    @property
    def follows(self) -> Messages:
        """What the full does not hold."""
        source = held(self.lab, self.graph.queues)
        return since_full(self.lab, source, self.made[0]["backup_id"], self.graph.writers.ops, 30)


@pytest.fixture(scope="module")
def shared(broker: Broker, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    """Backups for the tests that restore beside their engine."""
    lab = GraphLab(tmp_path_factory.mktemp("lived"), broker.bootstrap, empty_catalog)
    yield Lived(lab, *lived(lab))
    lab.close()


@pytest.fixture
def copied(shared: Lived, graph_lab: GraphLab) -> Lived:
    """The shared backups in a destination of the test's own."""
    shutil.rmtree(graph_lab.place)
    shutil.copytree(shared.lab.place, graph_lab.place)
    return replace(shared, lab=graph_lab)


ASKED = ("newest", "backup", "tid", "schema", "open", "time")


@pytest.mark.parametrize("asked", chosen(ASKED, ("newest", "open", "time")))
def test_what_comes_back(copied: Lived, asked: str) -> None:
    lab, graph, (full, one, two) = copied.lab, copied.graph, copied.made
    ops, last = list(graph.writers.ops), int(two["last_tid"])
    assert open_at(ops, 30)
    assert open_at(ops, last)
    schema = next(op.tid for op in ops if op.kind == "schema" and op.tid > one["last_tid"])
    inside = next(op.ts for op in ops if op.tid == one["last_tid"] + 12)
    later = min(op.tid for op in ops if op.ts > inside and op.kind != "schema")
    changes, tid = {
        "newest": ({}, last),
        "backup": ({"backup": one["backup_id"]}, int(one["last_tid"])),
        "tid": ({"to_tid": one["last_tid"] - 5}, one["last_tid"] - 5),
        "schema": ({"to_tid": one["last_tid"] + 9}, one["last_tid"] + 9),
        "open": ({"to_tid": last - 6, "keep_open": True}, last - 6),
        "time": ({"to_ts": inside}, later - 1),
    }[asked]
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    result = lab.restore(folder, maps(graph, queues), **changes)
    assert (result["to_tid"], result["resumed"]) == (tid, False)
    wanted = upto(copied.follows, ops, tid, keep_open="keep_open" in changes)
    said = {"graph": "social", "full": full["backup_id"], "last_tid": 30, "to_tid": tid}
    require_same(held(lab, queues), wanted, maps(graph, queues), said)
    assert sum(map(len, wanted.values())) == result["entries"]
    names = {path.name for path in folder.iterdir()}
    assert names == {"snapshot", "config.yaml", "delta_schema_history.yaml"}
    versions = yaml.safe_load((folder / "delta_schema_history.yaml").read_text())["schemas"]
    assert [v["tid"] for v in versions if v["tid"] > tid] == []
    assert (versions[-1]["tid"] >= schema) == (tid >= schema)
    assert not list((lab.place / "restores").rglob("*.jsonl"))


def test_what_a_dry_run_says_and_what_is_refused(copied: Lived) -> None:
    lab, graph, (full, one, last) = copied.lab, copied.graph, copied.made
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    before = lab.rows("SELECT COUNT(*) AS n FROM restores")
    told = lab.restore(folder, maps(graph, queues), dry_run=True)
    assert told["backups"] == [full["backup_id"], one["backup_id"], last["backup_id"]]
    assert {queue["action"] for queue in told["queues"]} == {"create"}
    own = lab.restore(folder, dry_run=True)
    assert all("holds messages already" in queue["refused_because"] for queue in own["queues"])
    assert not folder.exists()
    assert not (lab.place / "restores").exists()
    with pytest.raises(Refused, match="holds messages already"):
        lab.restore(folder)
    assert not folder.exists()
    folder.mkdir()
    (folder / "mine").touch()
    with pytest.raises(Refused, match="holds 'mine' already"):
        lab.restore(folder, maps(graph, queues))
    with pytest.raises(UsageProblem, match="no place messages can be restored to"):
        lab.restore(lab.new_folder(), target="dir:out")
    with pytest.raises(Refused, match=f"tid {last['last_tid'] + 1} .*before: tid {last['last_tid']}"):
        lab.restore(lab.new_folder(), maps(graph, queues), to_tid=last["last_tid"] + 1)
    assert before == lab.rows("SELECT COUNT(*) AS n FROM restores")


def _after(kind: type, name: str) -> Plant:
    """Dies when a method has been called; what is dead does not call it again, in no thread."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real, called = getattr(kind, name), list[None]()

        def dying(*given: Any, **named: Any) -> Any:
            if not called:
                real(*given, **named)
                called.append(None)
            raise Killed(name)

        patch.setattr(kind, name, dying)

    return plant


STEPS = (
    _after(EngineFolder, "begin"),
    _after(restore_snapshot, "run"),  # type: ignore[arg-type]
    _after(RestoreProducer, "commit"),
    _after(restore_queue._Run, "_replay"),
    _after(RestoreState, "write"),
    _after(RestoreState, "write"),
    _after(CatalogWriter, "record_once"),
    _after(EngineFolder, "finish"),
    _after(RestoreLog, "finish"),
)
# The first step after which the catalog knows of the restore.
TOLD = STEPS[-3]


def test_a_restore_resumes_wherever_it_was_cut_off(copied: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dies once behind each step after which other things are there; faults/test_queue_killed.py has all."""
    lab, graph, (full, _, two) = copied.lab, copied.graph, copied.made
    ops, tid = list(graph.writers.ops), int(two["last_tid"]) - 8
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    monkeypatch.setattr(replay_task, "TRANSACTION_BYTES", 1)  # a file in each transaction
    monkeypatch.setattr(queue_splits, "AT_ONCE", 1)
    for plant in STEPS:
        if plant is TOLD:
            before = micros(datetime.now(UTC))
        with monkeypatch.context() as patch:
            plant(patch)
            with pytest.raises(Killed):
                lab.restore(folder, maps(graph, queues), to_tid=tid)
    # The last step was behind the row that says that it is complete.
    with pytest.raises(Refused, match="already"):
        lab.restore(folder, maps(graph, queues), to_tid=tid)
    said = {"full": full["backup_id"], "to_tid": tid}
    require_same(held(lab, queues), upto(copied.follows, ops, tid), maps(graph, queues), said)
    rows = lab.rows("SELECT restore_id, scope, region, end_position, at FROM queue_restores")
    # A backup that was taken before that could not know of it.
    assert all(row["at"] >= before for row in rows)
    told = [json.loads(path.read_bytes()) for path in (lab.place / "audit").glob("*-queue-restore-*")]
    assert sorted(entry["at"] for entry in told) == sorted(row["at"] for row in rows)
    assert sorted((row["scope"], int(row["region"])) for row in rows) == sorted(queues.places)
    assert len({row["restore_id"] for row in rows}) == 1
    assert {path.name for path in folder.iterdir()} == {
        "snapshot",
        "config.yaml",
        "delta_schema_history.yaml",
    }


@pytest.mark.long
@pytest.mark.parametrize("told", chosen([False, True], [True]))
def test_a_restore_starts_over_when_what_it_wrote_is_gone(
    graph_lab: GraphLab, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    lab = graph_lab
    graph, _ = lived(lab)
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    with monkeypatch.context() as patch:
        _after(CatalogWriter, "record_once")(patch) if told else _after(restore_queue._Run, "_replay")(patch)
        with pytest.raises(Killed):
            lab.restore(folder, maps(graph, queues))
    queues.delete()
    with pytest.raises(Refused, match=r"belongs to another restore|already"):
        lab.restore(folder, {**maps(graph, queues), graph.queues.places[0][0]: "another"})
    some_writes(graph.writers, random.Random(7), 20)
    newest = lab.full(graph)
    some_writes(graph.writers, random.Random(8), 20)
    last = lab.backup(graph, "incremental")
    ops, tid = list(graph.writers.ops), int(last["last_tid"])
    result = lab.restore(folder, maps(graph, queues))
    assert result["full"] == newest["backup_id"]
    again = lab.taken_up(folder, queues, ops, tid)
    rows = lab.rows("SELECT restore_id, full_id, epoch FROM queue_restores")
    places = len(queues.places)
    assert len([row for row in rows if row["full_id"] == newest["backup_id"]]) == places
    assert (len(rows), len({row["restore_id"] for row in rows})) == ((2 * places, 2) if told else (places, 1))
    assert lab.rows("SELECT * FROM restores WHERE scope IS NULL")
    assert not CatalogReader(str(lab.place)).one("open_restores")
    # The new queues have other names: their backups begin with the full.
    again.writers.write("n:1", 1)
    assert lab.backup(again, "incremental")["parent"] == newest["backup_id"]


@pytest.mark.long
def test_progress_that_the_brokers_forgot_brings_nothing_twice(
    copied: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a group without members they forget it after a week."""
    lab, graph = copied.lab, copied.graph
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    with monkeypatch.context() as patch:
        _after(restore_queue._Run, "_replay")(patch)
        with pytest.raises(Killed):
            lab.restore(folder, maps(graph, queues))
    cluster, brought = Cluster({"bootstrap.servers": lab.bootstrap}), held(lab, queues)
    (row,) = CatalogReader(str(lab.place)).rows("open_restores")
    cluster.delete_group(group_of(row["restore_id"]))
    for _ in range(2):  # the first of them leaves an offset of the group
        with pytest.raises(Refused, match="would be there twice") as refused:
            lab.restore(folder, maps(graph, queues))
    assert "Delete the topic" in refused.value.hint
    assert held(lab, queues) == brought
    queues.delete()
    lab.restore(folder, maps(graph, queues))
    again = held(lab, queues)
    assert {place: len(found) for place, found in again.items()} == {p: len(m) for p, m in brought.items()}


def test_a_restore_whose_folder_is_missing_does_not_start_over(
    copied: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, graph, (_, _, two) = copied.lab, copied.graph, copied.made
    ops = list(graph.writers.ops)
    inside = next(op.ts for op in ops if op.tid == two["last_tid"] - 12)
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    with monkeypatch.context() as patch:
        _after(restore_queue._Run, "_replay")(patch)
        with pytest.raises(Killed):
            lab.restore(folder, maps(graph, queues), to_ts=inside)
    # `--to-time -2h` means another instant each time: the message names the first.
    with pytest.raises(Refused, match=f"with --to-time {format_ts(inside)}") as refused:
        lab.restore(folder, maps(graph, queues), to_ts=inside + 1)
    assert "run the same command" in refused.value.hint
    assert parse_time(format_ts(inside), now=0) == inside
    away = folder.rename(lab.new_folder())
    with pytest.raises(Refused, match="is not the folder that it started in"):
        lab.restore(folder, maps(graph, queues), to_ts=inside)
    assert not folder.exists()
    away.rename(folder)
    result = lab.restore(folder, maps(graph, queues), to_ts=inside)
    assert result["resumed"]
    left = open_at(ops, result["to_tid"])
    assert (result["open_transactions"], set(result["open_ids"])) == (len(left), left)
    wanted = upto(copied.follows, ops, result["to_tid"])
    require_same(held(lab, queues), wanted, maps(graph, queues), {"backup": two["backup_id"]})


def _then(kind: type, name: str, after: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Does something when a method has been called for the first time."""
    real, left = getattr(kind, name), [1]

    def called(*given: Any, **named: Any) -> Any:
        result = real(*given, **named)
        if left:
            left.clear()
            after()
        return result

    patch.setattr(kind, name, called)


@pytest.mark.long
@pytest.mark.parametrize("where", chosen(["before", "behind"], ["behind"]))
def test_somebody_writes_meanwhile(graph_lab: GraphLab, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    lab = graph_lab
    graph = lab.begin()
    place = graph.queues.places[0]
    _send(lab, place, (1, None, "write"))
    full = lab.full(graph, told=False)
    for tid in (10, 20):
        _send(lab, place, (tid, None, "write"))
        last = lab.backup(graph, "incremental")
    monkeypatch.setattr(replay_task, "TRANSACTION_BYTES", 1)
    monkeypatch.setattr(queue_splits, "AT_ONCE", 1)

    def restored() -> tuple[dict[str, Any], list[int]]:
        result = lab.restore(lab.new_folder(), append=True)
        rows = lab.rows(
            "SELECT base_position, whole FROM queue_restores "
            f"WHERE restore_id = '{result['restore_id']}' AND scope = '{place[0]}' AND region = '{place[1]}'"
        )
        assert [row["whole"] for row in rows] == [result["whole"]]
        begin = rows[0]["base_position"]
        there = held(lab, graph.queues)[place]
        return result, [int(header(r, "tid") or 0) for offset, r in there if offset >= begin]

    if where == "before":
        # What is before the watermark belongs to the history that is left.
        with monkeypatch.context() as patch:
            _then(restore_queue._Run, "_snapshot", lambda: _send(lab, place, (30, None, "write")), patch)
            result, tids = restored()
        assert (result["backup_id"], result["whole"], tids) == (last["backup_id"], True, [0, 10, 20])
        return
    # What is behind it belongs to the history that the engine goes on from, and to its next backup.
    with monkeypatch.context() as patch:
        _then(RestoreProducer, "commit", lambda: _send(lab, place, (40, None, "write")), patch)
        result, tids = restored()
    assert (result["backup_id"], result["whole"], tids) == (last["backup_id"], False, [0, 10, 40, 20])
    assert f"topic {place[0]}, partition {place[1]}: 1 offsets among" in lab.warnings.getvalue()
    assert lab.backup(graph, "incremental")["parent"] == full["backup_id"]
    queues = lab.queues(graph.queues)
    lab.restore(lab.new_folder(), maps(graph, queues))
    there = held(lab, queues)[maps(graph, queues)[place[0]], place[1]]
    assert [int(header(record, "tid") or 0) for _, record in there] == [0, 10, 40, 20]


@pytest.mark.parametrize("much", chosen(["ENTRIES", "LITTLE"], ["ENTRIES"]))
def test_on_spark(copied: Lived, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, much: str) -> None:
    """Much to keep of the messages, though they are few bytes; or many bytes."""
    lab, graph, (_, _, two) = copied.lab, copied.graph, copied.made
    ops, tid = list(graph.writers.ops), int(two["last_tid"]) - 8
    sessions: list[Any] = []

    def give_scans(reader: Any, session: Any, *given: Any) -> None:
        sessions.append(session)
        real(reader, session, *given)

    real = scan_task.give_scans
    monkeypatch.setattr(scan_task, "give_scans", give_scans)
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    monkeypatch.setattr(preparing, much, -1)
    request = lab.wanted(folder, maps(graph, queues), to_tid=tid)
    restore_queue.run(request, spark=spark, reporter=lab.reporter)
    require_same(held(lab, queues), upto(copied.follows, ops, tid), maps(graph, queues), {"to_tid": tid})
    assert {*sessions} == {spark}


@pytest.mark.long
def test_on_spark_with_nothing_open(
    graph_lab: GraphLab, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = graph_lab
    graph = lab.begin()
    place = graph.queues.places[0]
    _send(lab, place, (1, None, "write"))
    lab.full(graph, told=False)
    _send(lab, place, (2, None, "write"), (3, "t", "write"), (4, "t", "commit"), (5, None, "write"))
    lab.backup(graph, "incremental")
    queues = lab.queues(graph.queues)
    monkeypatch.setattr(preparing, "LITTLE", -1)
    request = lab.wanted(lab.new_folder(), maps(graph, queues), to_tid=4)
    result = restore_queue.run(request, spark=spark, reporter=lab.reporter)
    assert (result["open_transactions"], result["open_ids"], result["entries"]) == (0, [], 3)


def _send(lab: GraphLab, place: Place, *told: tuple[int, str | None, str], kind: str = "kind") -> None:
    """Tid, transaction and kind of each message; `kind`: the header that the last has."""
    records = []
    for tid, transaction, name in told:
        headers = [("tid", str(tid).encode()), (kind, name.encode())]
        headers += [("transaction", transaction.encode())] if transaction else []
        records.append(truth.Record(place[1], b"k", str(tid).encode(), tuple(headers), 1_000 + tid))
    truth.produce(lab.bootstrap, place[0], records)


@pytest.mark.long
def test_late_messages_belong_to_a_transaction_that_had_ended(graph_lab: GraphLab) -> None:
    """A header has another name here; the watermark has it too."""
    lab = graph_lab
    graph, names = lab.begin(), HeaderNames(kind="op")
    first, second = graph.queues.places[0], graph.queues.places[1]
    _send(lab, first, (1, None, "write"), kind="op")
    lab.full(graph, told=False, names=names)
    _send(lab, first, (10, "t", "write"), (12, "t", "commit"), (13, "u", "write"), kind="op")
    lab.backup(graph, "incremental", names=names)
    late = (11, "t", "write"), (14, "u", "write"), (15, "v", "write"), (20, None, "write")
    _send(lab, second, *late, kind="op")
    _send(lab, first, (21, "u", "commit"), kind="op")
    lab.backup(graph, "incremental", names=names)
    queues = lab.queues(graph.queues)
    lab.restore(lab.new_folder(), maps(graph, queues), to_tid=16)
    found = held(lab, queues)
    for (topic, partition), tids in ((first, [10, 12]), (second, [11])):
        assert [int(r.value or 0) for _, r in found[maps(graph, queues)[topic], partition][1:]] == tids, topic
    for records in found.values():
        assert dict(records[0][1].headers) == {"lakebackup-watermark": b"1", "op": b"watermark"}


def test_a_damaged_file_stops_a_restore(graph_lab: GraphLab) -> None:
    lab = graph_lab
    graph, (_, one, two) = lived(lab)
    rows = lab.rows(f"SELECT path FROM files WHERE role = 'data' AND backup_id = '{one['backup_id']}'")
    torn = lab.place / rows[0]["path"]
    content = torn.read_bytes()
    torn.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    # Since the backup somebody wants them kept for longer.
    topics, own = Cluster({"bootstrap.servers": lab.bootstrap}), {"retention.ms": str(10**12)}
    for topic in graph.queues.topics:
        topics.alter_settings(topic, put=own)
    folder = lab.new_folder()
    with pytest.raises(Damaged, match=r"is not what was written") as damaged:
        lab.restore(folder, append=True)
    assert f"Retention of {', '.join(sorted(graph.queues.topics))} is suspended" in damaged.value.hint
    assert {state.settings["retention.ms"] for state in topics.describe(graph.queues.topics)} == {"-1"}
    (row,) = lab.rows("SELECT state FROM restores WHERE scope IS NULL ORDER BY at DESC LIMIT 1")
    assert row["state"] == "failed"
    torn.write_bytes(content)
    assert lab.restore(folder, append=True)["resumed"]
    assert [state.settings for state in topics.describe(graph.queues.topics)] == [own] * len(
        graph.queues.topics
    )
    # A restore checks the engine's own files before it writes anything.
    (lab.place / "social/queues" / two["backup_id"] / "config.yaml").unlink()
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    with pytest.raises(Damaged, match=r"config\.yaml is missing"):
        lab.restore(folder, maps(graph, queues))
    assert not folder.exists()
    assert not set(queues.topics) & set(topics.topic_names())
