"""Restores of an engine against a real broker: which messages come back, in which order, behind what; and
that one that was cut off anywhere goes on without a message that is there twice."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support import kafka_truth as truth
from tests.support.graph_story import some_writes
from tests.support.graph_writers import open_at

from lakebackup.errors import Damaged, Refused, UsageProblem
from lakebackup.store import CatalogWriter
from lakebackup_jobs import restore_queue
from lakebackup_jobs.kafka.produce import RestoreProducer
from lakebackup_jobs.queues import replay_task
from lakebackup_jobs.queues.engine_folder import EngineFolder
from lakebackup_jobs.restoring import RestoreLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.graph_lab import Graph, GraphLab
    from tests.support.graph_writers import Op, Place, Queues

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Messages = dict["Place", list[tuple[int, truth.Record]]]


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


def lived(lab: GraphLab) -> tuple[Graph, list[dict[str, Any]]]:
    """An engine with a full and two incrementals, a schema change in between, and transactions over all."""
    dice = random.Random(3)
    graph = lab.begin()
    some_writes(graph.writers, dice, 40)
    full = lab.full(graph, until=30)
    some_writes(graph.writers, dice, 40)
    one = lab.backup(graph, "incremental")
    graph.writers.change_schema(("city", "name", "age"))
    some_writes(graph.writers, dice, 40)
    return graph, [full, one, lab.backup(graph, "incremental")]


def test_what_comes_back(graph_lab: GraphLab) -> None:
    lab = graph_lab
    graph, (full, one, two) = lived(lab)
    ops, last = list(graph.writers.ops), int(two["last_tid"])
    assert open_at(ops, 30)
    assert open_at(ops, last)
    follows = since_full(lab, held(lab, graph.queues), full["backup_id"], ops, 30)
    schema = next(op.tid for op in ops if op.kind == "schema" and op.tid > one["last_tid"])
    inside = next(op.ts for op in ops if op.tid == one["last_tid"] + 12)
    later = min(op.tid for op in ops if op.ts > inside and op.kind != "schema")
    for asked, tid in (
        ({}, last),
        ({"backup": one["backup_id"]}, int(one["last_tid"])),
        ({"to_tid": one["last_tid"] - 5}, one["last_tid"] - 5),
        ({"to_tid": one["last_tid"] + 9}, one["last_tid"] + 9),
        ({"to_tid": last - 6, "keep_open": True}, last - 6),
        ({"to_ts": inside}, later - 1),
    ):
        queues, folder = lab.queues(graph.queues), lab.new_folder()
        result = lab.restore(folder, maps(graph, queues), **asked)
        assert (result["to_tid"], result["resumed"]) == (tid, False), asked
        wanted = upto(follows, ops, tid, keep_open="keep_open" in asked)
        said = {"graph": "social", "full": full["backup_id"], "last_tid": 30, "to_tid": tid}
        require_same(held(lab, queues), wanted, maps(graph, queues), said)
        assert sum(map(len, wanted.values())) == result["entries"]
        names = {path.name for path in folder.iterdir()}
        assert names == {"snapshot", "config.yaml", "delta_schema_history.yaml"}
        versions = yaml.safe_load((folder / "delta_schema_history.yaml").read_text())["schemas"]
        assert [v["tid"] for v in versions if v["tid"] > tid] == []
        assert (versions[-1]["tid"] >= schema) == (tid >= schema)
    assert not list((lab.place / "restores").rglob("*.jsonl"))


def test_what_a_dry_run_says_and_what_is_refused(graph_lab: GraphLab) -> None:
    lab = graph_lab
    graph = lab.begin()
    some_writes(graph.writers, random.Random(1), 20)
    full = lab.full(graph)
    some_writes(graph.writers, random.Random(2), 20)
    last = lab.backup(graph, "incremental")
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    before = lab.rows("SELECT COUNT(*) AS n FROM restores")
    told = lab.restore(folder, maps(graph, queues), dry_run=True)
    assert told["backups"] == [full["backup_id"], last["backup_id"]]
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


def _after(kind: type, name: str, times: int = 1) -> Callable[[pytest.MonkeyPatch], None]:
    """Dies when a method has been called so often; what is dead does not call it again, in no thread."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real, left = getattr(kind, name), [times]

        def dying(*given: Any, **named: Any) -> Any:
            if not left[0]:
                raise Killed(name)
            result = real(*given, **named)
            left[0] -= 1
            if not left[0]:
                raise Killed(name)
            return result

        patch.setattr(kind, name, dying)

    return plant


STEPS = (
    _after(EngineFolder, "begin"),
    _after(restore_queue._Run, "_prepare"),
    _after(restore_queue.restore_snapshot, "run"),  # type: ignore[arg-type]
    _after(EngineFolder, "has_snapshot"),
    _after(EngineFolder, "put"),
    _after(EngineFolder, "put", 2),
    _after(RestoreProducer, "produce_block"),
    _after(RestoreProducer, "commit"),
    _after(RestoreProducer, "commit", 2),
    _after(RestoreProducer, "produce_block", 3),
    _after(restore_queue._Run, "_replay"),
    _after(restore_queue.kept, "write_done"),  # type: ignore[arg-type]
    _after(CatalogWriter, "tell_once"),
    _after(EngineFolder, "finish"),
    _after(RestoreLog, "finish"),
)


def test_cut_off_anywhere_it_goes_on(graph_lab: GraphLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = graph_lab
    graph, (full, _, two) = lived(lab)
    ops, tid = list(graph.writers.ops), int(two["last_tid"]) - 8
    follows = since_full(lab, held(lab, graph.queues), full["backup_id"], ops, 30)
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    monkeypatch.setattr(replay_task, "TRANSACTION_BYTES", 1)  # a file in each transaction
    monkeypatch.setattr(restore_queue, "_AT_ONCE", 1)
    for plant in STEPS:
        with monkeypatch.context() as patch:
            plant(patch)
            with pytest.raises(Killed):
                lab.restore(folder, maps(graph, queues), to_tid=tid)
    # The last step was behind the row that says that it is complete.
    with pytest.raises(Refused, match="already"):
        lab.restore(folder, maps(graph, queues), to_tid=tid)
    said = {"full": full["backup_id"], "to_tid": tid}
    require_same(held(lab, queues), upto(follows, ops, tid), maps(graph, queues), said)
    rows = lab.rows("SELECT restore_id, scope, region, end_position FROM queue_restores")
    assert sorted((row["scope"], int(row["region"])) for row in rows) == sorted(queues.places)
    assert len({row["restore_id"] for row in rows}) == 1
    assert {path.name for path in folder.iterdir()} == {
        "snapshot",
        "config.yaml",
        "delta_schema_history.yaml",
    }


def test_what_was_begun_begins_anew_when_what_it_wrote_is_gone(
    graph_lab: GraphLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = graph_lab
    graph, (full, _, two) = lived(lab)
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    with monkeypatch.context() as patch:
        _after(restore_queue._Run, "_replay")(patch)
        with pytest.raises(Killed):
            lab.restore(folder, maps(graph, queues))
    queues.delete()
    with pytest.raises(Refused, match=r"belongs to another restore|already"):
        lab.restore(folder, {**maps(graph, queues), graph.queues.places[0][0]: "another"})
    ops = list(graph.writers.ops)
    follows = since_full(lab, held(lab, graph.queues), full["backup_id"], ops, 30)
    assert lab.restore(folder, maps(graph, queues))["entries"] > 0
    require_same(
        held(lab, queues),
        upto(follows, ops, int(two["last_tid"])),
        maps(graph, queues),
        {"backup": two["backup_id"]},
    )


def test_behind_what_is_there_and_what_stands_on_it(graph_lab: GraphLab) -> None:
    lab = graph_lab
    graph, (full, one, two) = lived(lab)
    before = held(lab, graph.queues)
    folder = lab.new_folder()
    result = lab.restore(folder, backup=full["backup_id"], append=True)
    assert (result["to_tid"], result["entries"], result["whole"]) == (30, 0, True)
    rows = {
        (row["scope"], int(row["region"])): row
        for row in lab.rows("SELECT scope, region, base_position, end_position, whole FROM queue_restores")
    }
    after = held(lab, graph.queues)
    for place, records in after.items():
        assert records[: len(before[place])] == before[place]
        ((offset, _),) = records[len(before[place]) :]
        # The watermark, and the marker of its transaction.
        assert (rows[place]["base_position"], rows[place]["end_position"]) == (offset, offset + 2)
    ops = [op for op in graph.writers.ops if op.tid <= 30]
    again = lab.taken_up(folder, graph.queues, ops, 30)
    some_writes(again.writers, random.Random(9), 30)
    third = lab.backup(again, "differential")
    assert (third["kind"], third["parent"]) == ("cumulative", full["backup_id"])
    states = {
        row["backup_id"]: row["superseded"]
        for row in lab.rows("SELECT backup_id, superseded FROM queue_points")
    }
    assert states == {
        full["backup_id"]: False,
        one["backup_id"]: True,
        two["backup_id"]: True,
        third["backup_id"]: False,
    }
    told = lab.restore(lab.new_folder(), append=True, dry_run=True)
    assert told["backups"] == [full["backup_id"], third["backup_id"]]


def test_on_spark(graph_lab: GraphLab, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = graph_lab
    graph, (full, _, two) = lived(lab)
    ops, tid = list(graph.writers.ops), int(two["last_tid"]) - 8
    follows = since_full(lab, held(lab, graph.queues), full["backup_id"], ops, 30)
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    monkeypatch.setattr(restore_queue, "LITTLE", -1)
    request = lab.wanted(folder, maps(graph, queues), to_tid=tid)
    restore_queue.run(request, spark=spark, reporter=lab.reporter)
    require_same(held(lab, queues), upto(follows, ops, tid), maps(graph, queues), {"to_tid": tid})


def _send(lab: GraphLab, place: Place, *told: tuple[int, str | None, str]) -> None:
    records = []
    for tid, transaction, kind in told:
        headers = [("tid", str(tid).encode()), ("kind", kind.encode())]
        headers += [("transaction", transaction.encode())] if transaction else []
        records.append(truth.Record(place[1], b"k", str(tid).encode(), tuple(headers), 1_000 + tid))
    truth.produce(lab.bootstrap, place[0], records)


def test_what_came_late_to_a_queue_is_of_a_transaction_that_had_ended(
    graph_lab: GraphLab, tmp_path: Path
) -> None:
    lab = graph_lab
    graph = lab.begin()
    first, second = graph.queues.places[0], graph.queues.places[1]
    _send(lab, first, (1, None, "write"))
    lab.full(graph, told=False)
    _send(lab, first, (10, "t", "write"), (12, "t", "commit"), (13, "u", "write"))
    lab.backup(graph, "incremental")
    _send(lab, second, (11, "t", "write"), (14, "u", "write"), (15, "v", "write"), (20, None, "write"))
    _send(lab, first, (21, "u", "commit"))
    lab.backup(graph, "incremental")
    queues = lab.queues(graph.queues)
    lab.restore(lab.new_folder(), maps(graph, queues), to_tid=16)
    names, found = maps(graph, queues), held(lab, queues)
    for (topic, partition), tids in ((first, [10, 12]), (second, [11])):
        assert [int(r.value or 0) for _, r in found[names[topic], partition][1:]] == tids, topic


def test_a_file_that_is_not_what_it_was(graph_lab: GraphLab) -> None:
    lab = graph_lab
    graph, (_, one, _) = lived(lab)
    rows = lab.rows(f"SELECT path FROM files WHERE role = 'data' AND backup_id = '{one['backup_id']}'")
    torn = lab.place / rows[0]["path"]
    torn.write_bytes(torn.read_bytes()[:-1] + b"\0")
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    with pytest.raises(Damaged, match=r"is not what was written"):
        lab.restore(folder, maps(graph, queues))
    (row,) = lab.rows("SELECT state FROM restores WHERE scope IS NULL ORDER BY at DESC LIMIT 1")
    assert row["state"] == "failed"
