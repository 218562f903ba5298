"""Restores of an engine against a real broker.

The tests check which messages a restore writes, in which order and after which watermark. Those that kill
restores and resume them are in tests/contract/test_restore_life.py.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support import kafka_truth as truth
from tests.support.chosen import mark_long
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
from lakebackup_jobs.kafka.admin.topic_changes import TopicChanges
from lakebackup_jobs.kafka.client.produce import RestoreProducer
from lakebackup_jobs.queues.restore import job as restore_queue
from lakebackup_jobs.queues.restore import replay_task, scan_task
from lakebackup_jobs.queues.restore import shares as queue_shares
from lakebackup_jobs.targets.topics import group_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.graph_writers import Op, QueuePartition, Queues

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Messages = dict["QueuePartition", list[tuple[int, truth.Record]]]
KillStep = Callable[[pytest.MonkeyPatch], None]


class Killed(BaseException):
    """The run was killed. No code of lakebackup catches this."""


def messages_in(lab: GraphLab, queues: Queues) -> Messages:
    """The messages of each partition, with offsets."""
    messages: Messages = {partition: [] for partition in queues.partitions}
    for topic in queues.topics:
        for offset, record in truth.read(lab.bootstrap, topic):
            messages[topic, record.partition].append((offset, record))
    return {partition: sorted(records, key=lambda pair: pair[0]) for partition, records in messages.items()}


def header(record: truth.Record, name: str) -> str | None:
    value = dict(record.headers).get(name)
    return None if value is None else value.decode()


def messages_since(
    lab: GraphLab, source: Messages, full_id: str, ops: Sequence[Op], first_tid: int
) -> Messages:
    """The messages of each partition after a full, preceded by those of transactions that were open at it."""
    rows = lab.rows(f"SELECT scope, region, end_position FROM positions WHERE backup_id = '{full_id}'")
    ends = {(row["scope"], int(row["region"])): row["end_position"] for row in rows}
    open_ids = open_at(ops, first_tid)
    return {
        partition: [
            (offset, record)
            for offset, record in records
            if offset >= ends[partition] or header(record, "transaction") in open_ids
        ]
        for partition, records in source.items()
    }


def messages_up_to(messages: Messages, ops: Sequence[Op], tid: int, *, keep_open: bool = False) -> Messages:
    open_ids = set() if keep_open else open_at(ops, tid)
    return {
        partition: [
            (offset, record)
            for offset, record in records
            if int(header(record, "tid") or 0) <= tid and header(record, "transaction") not in open_ids
        ]
        for partition, records in messages.items()
    }


def require_same(
    actual: Messages, expected: Messages, names: Mapping[str, str], watermark: Mapping[str, Any]
) -> None:
    """Each partition must hold one watermark, then the same messages in the same order."""
    for (topic, partition), records in expected.items():
        (_, first_record), *messages = actual[names[topic], partition]
        assert (first_record.key, dict(first_record.headers)) == (
            None,
            {"lakebackup-watermark": b"1", "kind": b"watermark"},
        )
        values = json.loads(first_record.value or b"")
        assert {name: values[name] for name in watermark} == watermark
        assert [record for _, record in messages] == [record for _, record in records], (topic, partition)


def maps(graph: Graph, queues: Queues) -> dict[str, str]:
    return dict(zip(graph.queues.topics, queues.topics, strict=True))


def increasing_clock() -> Callable[[], int]:
    """A clock that never returns a millisecond twice, so that messages differ in their times."""
    last_ms = 0

    def next_ms() -> int:
        nonlocal last_ms
        previous_ms = last_ms
        while last_ms <= previous_ms:
            last_ms = now_ms()
        return last_ms

    return next_ms


def create_history(lab: GraphLab) -> tuple[Graph, list[dict[str, Any]]]:
    """An engine with a full and two incrementals, and these backups.

    Transactions cross the backups, and the schema changes between the incrementals.
    """
    dice = random.Random(3)
    graph = lab.begin(increasing_clock())
    some_writes(graph.writers, dice, 40)
    full = lab.full(graph, until=30)
    some_writes(graph.writers, dice, 40)
    first_incremental = lab.backup(graph, "incremental")
    graph.writers.change_schema(("city", "name", "age"))
    some_writes(graph.writers, dice, 40)
    return graph, [full, first_incremental, lab.backup(graph, "incremental")]


@dataclass(frozen=True)
class History:
    """The engine of `create_history`, and the lab with its backups."""

    lab: GraphLab
    graph: Graph
    backups: list[dict[str, Any]]

    @property
    def messages_after_full(self) -> Messages:
        """The messages that the full does not hold."""
        source = messages_in(self.lab, self.graph.queues)
        return messages_since(self.lab, source, self.backups[0]["backup_id"], self.graph.writers.ops, 30)


@pytest.fixture(scope="module")
def shared(
    broker: Broker, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[History]:
    """Backups that are shared by the tests that restore beside their engine."""
    lab = GraphLab(tmp_path_factory.mktemp("lived"), broker.bootstrap, empty_catalog)
    yield History(lab, *create_history(lab))
    lab.close()


@pytest.fixture
def copied(shared: History, graph_lab: GraphLab) -> History:
    """A copy of the shared backups in a repository of the test's own."""
    shutil.rmtree(graph_lab.repo)
    shutil.copytree(shared.lab.repo, graph_lab.repo)
    return replace(shared, lab=graph_lab)


RESTORE_CASES = ("newest", "backup", "tid", "schema", "open", "time")


@pytest.mark.parametrize("case", mark_long(RESTORE_CASES, ("newest", "open", "time")))
def test_a_restore_gives_the_messages_up_to_its_point(copied: History, case: str) -> None:
    lab, graph, (full, first_incremental, second_incremental) = copied.lab, copied.graph, copied.backups
    ops, last_tid = list(graph.writers.ops), int(second_incremental["last_tid"])
    assert open_at(ops, 30)
    assert open_at(ops, last_tid)
    schema_tid = next(op.tid for op in ops if op.kind == "schema" and op.tid > first_incremental["last_tid"])
    inside_ts = next(op.ts for op in ops if op.tid == first_incremental["last_tid"] + 12)
    later_tid = min(op.tid for op in ops if op.ts > inside_ts and op.kind != "schema")
    changes, tid = {
        "newest": ({}, last_tid),
        "backup": ({"backup": first_incremental["backup_id"]}, int(first_incremental["last_tid"])),
        "tid": ({"to_tid": first_incremental["last_tid"] - 5}, first_incremental["last_tid"] - 5),
        "schema": ({"to_tid": first_incremental["last_tid"] + 9}, first_incremental["last_tid"] + 9),
        "open": ({"to_tid": last_tid - 6, "keep_open": True}, last_tid - 6),
        "time": ({"to_ts": inside_ts}, later_tid - 1),
    }[case]
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    result = lab.restore(folder, maps(graph, queues), **changes)
    assert (result["to_tid"], result["resumed"]) == (tid, False)
    expected = messages_up_to(copied.messages_after_full, ops, tid, keep_open="keep_open" in changes)
    watermark = {"graph": "social", "full": full["backup_id"], "last_tid": 30, "to_tid": tid}
    require_same(messages_in(lab, queues), expected, maps(graph, queues), watermark)
    assert sum(map(len, expected.values())) == result["entries"]
    names = {path.name for path in folder.iterdir()}
    assert names == {"snapshot", "config.yaml", "delta_schema_history.yaml"}
    versions = yaml.safe_load((folder / "delta_schema_history.yaml").read_text())["schemas"]
    assert [version["tid"] for version in versions if version["tid"] > tid] == []
    assert (versions[-1]["tid"] >= schema_tid) == (tid >= schema_tid)
    assert not list((lab.repo / "restores").rglob("*.jsonl"))


def test_a_dry_run_lists_its_plan_and_unsuitable_targets_are_refused(copied: History) -> None:
    lab, graph, (full, first_incremental, second_incremental) = copied.lab, copied.graph, copied.backups
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    restores_before = lab.rows("SELECT COUNT(*) AS n FROM restores")
    plan = lab.restore(folder, maps(graph, queues), dry_run=True)
    assert plan["backups"] == [
        full["backup_id"],
        first_incremental["backup_id"],
        second_incremental["backup_id"],
    ]
    assert {queue["action"] for queue in plan["queues"]} == {"create"}
    own_plan = lab.restore(folder, dry_run=True)
    assert all("holds messages already" in queue["refused_because"] for queue in own_plan["queues"])
    assert not folder.exists()
    assert not (lab.repo / "restores").exists()
    with pytest.raises(Refused, match="holds messages already"):
        lab.restore(folder)
    assert not folder.exists()
    folder.mkdir()
    (folder / "mine").touch()
    with pytest.raises(Refused, match="holds 'mine' already"):
        lab.restore(folder, maps(graph, queues))
    with pytest.raises(UsageProblem, match="no place messages can be restored to"):
        lab.restore(lab.new_folder(), target="dir:out")
    with pytest.raises(
        Refused,
        match=f"tid {second_incremental['last_tid'] + 1} .*before: tid {second_incremental['last_tid']}",
    ):
        lab.restore(lab.new_folder(), maps(graph, queues), to_tid=second_incremental["last_tid"] + 1)
    assert restores_before == lab.rows("SELECT COUNT(*) AS n FROM restores")


def _die_after(kind: type, name: str) -> KillStep:
    """Let a run die after its first call of a method. Later calls, in any thread, die at once."""

    def install(patch: pytest.MonkeyPatch) -> None:
        method, calls = getattr(kind, name), list[None]()

        def dying(*arguments: Any, **keywords: Any) -> Any:
            if not calls:
                method(*arguments, **keywords)
                calls.append(None)
            raise Killed(name)

        patch.setattr(kind, name, dying)

    return install


@pytest.mark.long
@pytest.mark.parametrize("recorded", mark_long([False, True], [True]))
def test_a_restore_starts_over_when_its_queues_were_deleted(
    graph_lab: GraphLab, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    lab = graph_lab
    graph, _ = create_history(lab)
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    with monkeypatch.context() as patch:
        _die_after(CatalogWriter, "record_once")(patch) if recorded else _die_after(
            restore_queue._Run, "_replay"
        )(patch)
        with pytest.raises(Killed):
            lab.restore(folder, maps(graph, queues))
    queues.delete()
    with pytest.raises(Refused, match=r"belongs to another restore|already"):
        lab.restore(folder, {**maps(graph, queues), graph.queues.partitions[0][0]: "another"})
    some_writes(graph.writers, random.Random(7), 20)
    newest_full = lab.full(graph)
    some_writes(graph.writers, random.Random(8), 20)
    last_backup = lab.backup(graph, "incremental")
    ops, tid = list(graph.writers.ops), int(last_backup["last_tid"])
    result = lab.restore(folder, maps(graph, queues))
    assert result["full"] == newest_full["backup_id"]
    restored = lab.taken_up(folder, queues, ops, tid)
    rows = lab.rows("SELECT restore_id, full_id, epoch FROM queue_restores")
    partition_count = len(queues.partitions)
    assert len([row for row in rows if row["full_id"] == newest_full["backup_id"]]) == partition_count
    assert (len(rows), len({row["restore_id"] for row in rows})) == (
        (2 * partition_count, 2) if recorded else (partition_count, 1)
    )
    assert lab.rows("SELECT * FROM restores WHERE scope IS NULL")
    assert not CatalogReader(str(lab.repo)).first_row("open_restores")
    # The new queues have other names, so their backups start from the full.
    restored.writers.write("n:1", 1)
    assert lab.backup(restored, "incremental")["parent"] == newest_full["backup_id"]


@pytest.mark.long
def test_a_restore_with_lost_progress_is_refused(copied: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers delete the offsets of a group without members after a week."""
    lab, graph = copied.lab, copied.graph
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    with monkeypatch.context() as patch:
        _die_after(restore_queue._Run, "_replay")(patch)
        with pytest.raises(Killed):
            lab.restore(folder, maps(graph, queues))
    cluster, messages_before = Cluster({"bootstrap.servers": lab.bootstrap}), messages_in(lab, queues)
    (row,) = CatalogReader(str(lab.repo)).rows("open_restores")
    cluster.delete_group(group_of(row["restore_id"]))
    for _ in range(2):  # the first attempt leaves an offset of the group
        with pytest.raises(Refused, match="would be there twice") as refused:
            lab.restore(folder, maps(graph, queues))
    assert "Delete the topic" in refused.value.hint
    assert messages_in(lab, queues) == messages_before
    queues.delete()
    lab.restore(folder, maps(graph, queues))
    messages_after = messages_in(lab, queues)
    assert {partition: len(messages) for partition, messages in messages_after.items()} == {
        p: len(m) for p, m in messages_before.items()
    }


def test_a_restore_whose_folder_is_missing_does_not_start_over(
    copied: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, graph, (_, _, second_incremental) = copied.lab, copied.graph, copied.backups
    ops = list(graph.writers.ops)
    to_ts = next(op.ts for op in ops if op.tid == second_incremental["last_tid"] - 12)
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    with monkeypatch.context() as patch:
        _die_after(restore_queue._Run, "_replay")(patch)
        with pytest.raises(Killed):
            lab.restore(folder, maps(graph, queues), to_ts=to_ts)
    # `--to-time -2h` means another instant in each run, so the message names the first one.
    with pytest.raises(Refused, match=f"with --to-time {format_ts(to_ts)}") as refused:
        lab.restore(folder, maps(graph, queues), to_ts=to_ts + 1)
    assert "run the same command" in refused.value.hint
    assert parse_time(format_ts(to_ts), now_ms=0) == to_ts
    moved_folder = folder.rename(lab.new_folder())
    with pytest.raises(Refused, match="is not the folder that it started in"):
        lab.restore(folder, maps(graph, queues), to_ts=to_ts)
    assert not folder.exists()
    moved_folder.rename(folder)
    result = lab.restore(folder, maps(graph, queues), to_ts=to_ts)
    assert result["resumed"]
    open_ids = open_at(ops, result["to_tid"])
    assert (result["open_transactions"], set(result["open_ids"])) == (len(open_ids), open_ids)
    expected = messages_up_to(copied.messages_after_full, ops, result["to_tid"])
    require_same(
        messages_in(lab, queues), expected, maps(graph, queues), {"backup": second_incremental["backup_id"]}
    )


def _call_after(kind: type, name: str, action: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Call `action` after the first call of a method."""
    method, first_call = getattr(kind, name), [1]

    def call_method(*arguments: Any, **keywords: Any) -> Any:
        result = method(*arguments, **keywords)
        if first_call:
            first_call.clear()
            action()
        return result

    patch.setattr(kind, name, call_method)


@pytest.mark.long
@pytest.mark.parametrize("write_position", mark_long(["before", "behind"], ["behind"]))
def test_messages_written_during_a_restore_belong_to_the_right_history(
    graph_lab: GraphLab, monkeypatch: pytest.MonkeyPatch, write_position: str
) -> None:
    lab = graph_lab
    graph = lab.begin()
    partition = graph.queues.partitions[0]
    _send(lab, partition, (1, None, "write"))
    full = lab.full(graph, described=False)
    for tid in (10, 20):
        _send(lab, partition, (tid, None, "write"))
        last_incremental = lab.backup(graph, "incremental")
    monkeypatch.setattr(replay_task, "TRANSACTION_BYTES", 1)
    monkeypatch.setattr(queue_shares, "MOST_THREADS", 1)

    def restore() -> tuple[dict[str, Any], list[int]]:
        result = lab.restore(lab.new_folder(), append=True)
        rows = lab.rows(
            "SELECT base_position, whole FROM queue_restores "
            f"WHERE restore_id = '{result['restore_id']}' AND scope = '{partition[0]}' "
            f"AND region = '{partition[1]}'"
        )
        assert [row["whole"] for row in rows] == [result["whole"]]
        base_position = rows[0]["base_position"]
        messages = messages_in(lab, graph.queues)[partition]
        return result, [int(header(r, "tid") or 0) for offset, r in messages if offset >= base_position]

    if write_position == "before":
        # Messages before the watermark belong to the abandoned history.
        with monkeypatch.context() as patch:
            _call_after(
                restore_queue._Run, "_snapshot", lambda: _send(lab, partition, (30, None, "write")), patch
            )
            result, tids = restore()
        assert (result["backup_id"], result["whole"], tids) == (
            last_incremental["backup_id"],
            True,
            [0, 10, 20],
        )
        return
    # Messages after the watermark belong to the engine's history, and to its next backup.
    with monkeypatch.context() as patch:
        _call_after(RestoreProducer, "commit", lambda: _send(lab, partition, (40, None, "write")), patch)
        result, tids = restore()
    assert (result["backup_id"], result["whole"], tids) == (
        last_incremental["backup_id"],
        False,
        [0, 10, 40, 20],
    )
    assert f"topic {partition[0]}, partition {partition[1]}: 1 offsets among" in lab.warnings.getvalue()
    assert lab.backup(graph, "incremental")["parent"] == full["backup_id"]
    queues = lab.queues(graph.queues)
    lab.restore(lab.new_folder(), maps(graph, queues))
    messages = messages_in(lab, queues)[maps(graph, queues)[partition[0]], partition[1]]
    assert [int(header(record, "tid") or 0) for _, record in messages] == [0, 10, 40, 20]


def test_a_restore_on_spark_gives_the_same_messages(
    copied: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, graph, (_, _, second_incremental) = copied.lab, copied.graph, copied.backups
    ops, tid = list(graph.writers.ops), int(second_incremental["last_tid"]) - 8
    sessions: list[Any] = []

    def with_scans(reader: Any, session: Any, *arguments: Any) -> Any:
        sessions.append(session)
        return original_with_scans(reader, session, *arguments)

    original_with_scans = scan_task.with_scans
    monkeypatch.setattr(scan_task, "with_scans", with_scans)
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    request = replace(lab.restore_request(folder, maps(graph, queues), to_tid=tid), runner="spark")
    restore_queue.run(request, spark=spark, reporter=lab.reporter)
    require_same(
        messages_in(lab, queues),
        messages_up_to(copied.messages_after_full, ops, tid),
        maps(graph, queues),
        {"to_tid": tid},
    )
    assert {*sessions} == {spark}


@pytest.mark.long
def test_a_restore_on_spark_without_open_transactions(graph_lab: GraphLab, spark: SparkSession) -> None:
    lab = graph_lab
    graph = lab.begin()
    partition = graph.queues.partitions[0]
    _send(lab, partition, (1, None, "write"))
    lab.full(graph, described=False)
    _send(lab, partition, (2, None, "write"), (3, "t", "write"), (4, "t", "commit"), (5, None, "write"))
    lab.backup(graph, "incremental")
    queues = lab.queues(graph.queues)
    request = replace(lab.restore_request(lab.new_folder(), maps(graph, queues), to_tid=4), runner="spark")
    result = restore_queue.run(request, spark=spark, reporter=lab.reporter)
    assert (result["open_transactions"], result["open_ids"], result["entries"]) == (0, [], 3)


def _send(
    lab: GraphLab, partition: QueuePartition, *messages: tuple[int, str | None, str], kind: str = "kind"
) -> None:
    """Send messages of (tid, transaction, kind). `kind`: the name of the header with the kind."""
    records = []
    for tid, transaction, name in messages:
        headers = [("tid", str(tid).encode()), (kind, name.encode())]
        headers += [("transaction", transaction.encode())] if transaction else []
        records.append(truth.Record(partition[1], b"k", str(tid).encode(), tuple(headers), 1_000 + tid))
    truth.produce(lab.bootstrap, partition[0], records)


@pytest.mark.long
def test_late_messages_belong_to_their_committed_transaction(graph_lab: GraphLab) -> None:
    """The header of the kind has another name, also in the watermark."""
    lab = graph_lab
    graph, names = lab.begin(), HeaderNames(kind="op")
    first_partition, second_partition = graph.queues.partitions[0], graph.queues.partitions[1]
    _send(lab, first_partition, (1, None, "write"), kind="op")
    lab.full(graph, described=False, names=names)
    _send(lab, first_partition, (10, "t", "write"), (12, "t", "commit"), (13, "u", "write"), kind="op")
    lab.backup(graph, "incremental", names=names)
    late_messages = (11, "t", "write"), (14, "u", "write"), (15, "v", "write"), (20, None, "write")
    _send(lab, second_partition, *late_messages, kind="op")
    _send(lab, first_partition, (21, "u", "commit"), kind="op")
    lab.backup(graph, "incremental", names=names)
    queues = lab.queues(graph.queues)
    lab.restore(lab.new_folder(), maps(graph, queues), to_tid=16)
    messages_by_partition = messages_in(lab, queues)
    for (topic, partition), tids in ((first_partition, [10, 12]), (second_partition, [11])):
        assert [
            int(r.value or 0) for _, r in messages_by_partition[maps(graph, queues)[topic], partition][1:]
        ] == tids, topic
    for records in messages_by_partition.values():
        assert dict(records[0][1].headers) == {"lakebackup-watermark": b"1", "op": b"watermark"}


def test_a_damaged_file_stops_a_restore(graph_lab: GraphLab) -> None:
    lab = graph_lab
    graph, (_, first_incremental, second_incremental) = create_history(lab)
    rows = lab.rows(
        f"SELECT path FROM files WHERE role = 'data' AND backup_id = '{first_incremental['backup_id']}'"
    )
    damaged_file = lab.repo / rows[0]["path"]
    content = damaged_file.read_bytes()
    damaged_file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    # The topics got a longer retention after the backup.
    topics, own_settings = TopicChanges({"bootstrap.servers": lab.bootstrap}), {"retention.ms": str(10**12)}
    assert topics.alter_settings(dict.fromkeys(graph.queues.topics, own_settings)) == {}
    folder = lab.new_folder()
    with pytest.raises(Damaged, match=r"is not what was written") as damaged:
        lab.restore(folder, append=True)
    assert f"Retention of {', '.join(sorted(graph.queues.topics))} is suspended" in damaged.value.hint
    assert {state.settings["retention.ms"] for state in topics.describe(graph.queues.topics)} == {"-1"}
    (row,) = lab.rows("SELECT state FROM restores WHERE scope IS NULL ORDER BY at DESC LIMIT 1")
    assert row["state"] == "failed"
    damaged_file.write_bytes(content)
    assert lab.restore(folder, append=True)["resumed"]
    assert [state.settings for state in topics.describe(graph.queues.topics)] == [own_settings] * len(
        graph.queues.topics
    )
    # A restore checks the engine's own files before it writes anything.
    (lab.repo / "social/queues" / second_incremental["backup_id"] / "config.yaml").unlink()
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    with pytest.raises(Damaged, match=r"config\.yaml is missing"):
        lab.restore(folder, maps(graph, queues))
    assert not folder.exists()
    assert not set(queues.topics) & set(topics.topic_names())
