"""Backups of an engine's queues against a real broker: what is stored, refused, gone, and open."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.social import SCHEMA, Message, Social, ordered, put_back

from lakebackup.errors import NeedsFull, NotFound, Refused, UsageProblem
from lakebackup.plan import splits
from lakebackup.plan.queues import backup as planning
from lakebackup.store.lease import Lease
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.queues.backup import open_transactions as ending
from lakebackup_jobs.queues.backup import planner
from lakebackup_jobs.runtime import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


# --- what is stored


def test_a_full_has_no_messages_and_its_snapshot_is_held(social: Social) -> None:
    social.send(social.delta)
    social.send(social.delta, 1, "t1", "begin")
    found = social.full()
    assert (found["kind"], found["entries"], found["last_tid"], found["open_transactions"]) == (
        "full",
        0,
        2,
        1,
    )
    assert social.stored(found["backup_id"]) == []
    assert social.open_at(found["backup_id"]) == {"t1"}
    (point,) = social.rows("SELECT * FROM queue_points")
    (snapshot,) = social.rows("SELECT backup_id FROM backups WHERE source = 'social.snapshot'")
    assert point["snapshot_id"] == found["snapshot"] == snapshot["backup_id"]
    (hold,) = social.rows("SELECT backup_id, source, until_ts FROM holds")
    assert hold == {"backup_id": found["snapshot"], "source": "social.snapshot", "until_ts": None}
    (backup,) = social.rows("SELECT start_ts, end_ts, intact FROM backups WHERE source = 'social'")
    assert (backup["end_ts"] - backup["start_ts"], backup["intact"]) == (1, True)


def test_an_incremental_chain_holds_each_message_once(social: Social) -> None:
    front = social.send(social.delta, 0, "long", "begin")
    social.full()
    stored: list[Message] = []
    sent = [front]
    parents = []
    for step in range(3):
        sent += [social.send(social.delta, step % 2), social.send(social.journal)]
        if step == 1:
            sent.append(social.send(social.delta, 1, "long"))
        if step == 2:
            sent.append(social.send(social.delta, 0, "long", "commit"))
        found = social.backup("incremental")
        assert social.open_at(found["backup_id"]) == (set() if step == 2 else {"long"})
        parents.append((found["parent"], found["backup_id"]))
        stored += social.stored(found["backup_id"])
    assert sorted(stored) == sorted(sent)
    assert [parent for parent, _ in parents[1:]] == [own for _, own in parents[:-1]]
    rows = social.rows("SELECT start_ts, end_ts, intact FROM backups WHERE source = 'social' ORDER BY number")
    assert [row["start_ts"] for row in rows[1:]] == [row["end_ts"] for row in rows[:-1]]
    assert all(row["intact"] for row in rows)


# --- snapshot.json


def test_a_snapshot_with_wrong_positions_is_refused_and_nothing_is_visible(social: Social) -> None:
    for _ in range(4):
        social.send(social.delta)
    places = {(social.delta, 0): (4, 2), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)}
    social.tell(3, places)
    with pytest.raises(Refused, match=r"last_tid 3.*offset 3, with tid 4"):
        social.full()
    social.tell(4, places, open_transactions=["t9"])
    with pytest.raises(Refused, match="t9 as open, and in the queues it is not"):
        social.full()
    social.tell(4, {**places, (social.delta, 0): (5, 2)})
    with pytest.raises(Refused, match="ends at 4"):
        social.full()
    assert social.rows("SELECT backup_id FROM backups") == []
    social.tell(4, places)
    assert social.full()["last_tid"] == 4


# --- files of the engine


def test_the_engines_files_travel_with_each_backup(social: Social) -> None:
    full = social.full()
    social.send(social.delta)
    social.config.write_text("engine: 5\n")
    social.schema.write_text(SCHEMA + "- {version: 2, tid: 9, change: [add, age]}\n")
    found = social.backup("differential")
    for backup_id, config, schema in (
        (full["backup_id"], "engine: 4\n", SCHEMA),
        (found["backup_id"], social.config.read_text(), social.schema.read_text()),
    ):
        files = social.rows(f"SELECT role, path FROM files WHERE backup_id = '{backup_id}' ORDER BY role")
        texts = {
            f["role"]: (social.place / f["path"]).read_text()
            for f in files
            if f["role"] in ("config", "schema")
        }
        assert texts == {"config": config, "schema": schema}
    versions = social.rows(
        f"SELECT version, from_tid, to_tid, change, definition FROM queue_schemas "
        f"WHERE backup_id = '{found['backup_id']}' ORDER BY version"
    )
    assert versions == [
        {"version": 1, "from_tid": 0, "to_tid": 9, "change": None, "definition": '{"person": ["name"]}'},
        {"version": 2, "from_tid": 9, "to_tid": None, "change": '["add", "age"]', "definition": None},
    ]
    assert social.warnings.getvalue() == ""


@pytest.mark.long
def test_a_schema_history_that_does_not_continue_gets_a_warning(social: Social) -> None:
    social.schema.write_text("schemas: [{version: 3, tid: 2}]")
    social.full()
    social.schema.write_text("schemas: [{version: 4, tid: 3}]")
    social.send(social.delta)
    social.backup("incremental")
    assert "version 3, valid from tid 2, is not in it" in social.warnings.getvalue()
    assert "messages from tid 1 on" in social.warnings.getvalue()
    with pytest.raises(UsageProblem, match="has a schema history, and --engine-schema"):
        social.backup("incremental", schema=None)


# --- what is gone from the queues


def test_a_purge_asks_for_a_full_and_nothing_is_written(social: Social) -> None:
    for _ in range(3):
        social.send(social.delta)
    full = social.full()
    for _ in range(3):
        social.send(social.delta)
    truth.delete_records(social.bootstrap, social.delta, {0: 5})
    before = social.tree()
    for mode in ("auto", "differential"):
        with pytest.raises(NeedsFull, match=rf"topic {social.delta}, partition 0, offsets \[3, 5\)"):
            social.backup(mode)
    with pytest.raises(NeedsFull):
        social.backup(dry_run=True)
    new = {path.partition("/")[0] for path in social.tree() - before}
    assert new == {"audit", "catalog"}
    audit = social.rows("SELECT subject, detail FROM audit WHERE action = 'queue gap'")
    assert [row["subject"] for row in audit] == ["social"] * 2
    (missing,) = json.loads(audit[0]["detail"])["missing"]
    assert (missing["scope"], missing["from_position"], missing["to_position"]) == (social.delta, 3, 5)

    again = social.full()
    (gap,) = social.rows("SELECT backup_id, from_position, to_position, reason, bridged FROM gaps")
    assert gap == {
        "backup_id": again["backup_id"], "from_position": 3, "to_position": 5, "reason": "purged",
        "bridged": False,
    }  # fmt: skip
    assert full["backup_id"] != again["backup_id"]
    own = social.send(social.delta)
    assert social.stored(social.backup("differential")["backup_id"]) == [own]


def test_a_message_that_nobody_understands_is_left_out_on_record(social: Social) -> None:
    """Of the differential that meets it, and of later ones, which read it again."""
    social.full()
    social.send(social.delta)
    truth.produce(social.bootstrap, social.delta, [truth.Record(0, b"k", b"v", (), 0)])
    with pytest.raises(Refused, match="has no header 'tid'") as refused:
        social.backup("differential")
    place = f"{social.delta}[0]@1"
    assert f"--skip-message '{place}'" in refused.value.hint
    with pytest.raises(NotFound, match="reads no such partition"):
        social.backup("differential", skip=(f"{social.delta}[7]@1",))
    assert social.backup("differential", skip=(place,))["ended"]["entries"] == 1
    social.send(social.delta)
    assert social.backup("differential")["entries"] == 2
    (entry,) = social.rows("SELECT subject, detail FROM audit WHERE action = 'skip message'")
    assert (entry["subject"], json.loads(entry["detail"])["position"]) == ("social", 1)


@pytest.mark.long
def test_messages_that_a_chain_lost_are_read_from_the_queues_again(social: Social) -> None:
    """No verify ran: the next backup lists what it would depend on, and continues the newest whole one."""
    full = social.full()["backup_id"]
    sent = [social.send(social.delta)]
    lost = social.backup("incremental")["backup_id"]
    (file,) = social.rows(f"SELECT path FROM files WHERE backup_id = '{lost}' AND role = 'data'")
    (social.place / file["path"]).unlink()
    sent.append(social.send(social.delta))
    again = social.backup("incremental")
    assert f"{file['path']} is missing" in social.warnings.getvalue()
    assert (again["parent"], social.stored(again["backup_id"])) == (full, sent)
    usable = social.rows("SELECT backup_id FROM backups WHERE source = 'social' AND intact ORDER BY number")
    assert [row["backup_id"] for row in usable] == [full, again["backup_id"]]
    put_back(social, "put back")


def test_a_chain_that_lost_messages_which_the_queues_deleted_needs_a_full(social: Social) -> None:
    social.full()
    social.send(social.delta)
    lost = social.backup("incremental")["backup_id"]
    (file,) = social.rows(f"SELECT path FROM files WHERE backup_id = '{lost}' AND role = 'data'")
    (social.place / file["path"]).unlink()
    social.send(social.delta)
    truth.delete_records(social.bootstrap, social.delta, {0: 1})
    with pytest.raises(NeedsFull, match="were lost before they were backed up"):
        social.backup("incremental")
    assert social.full()["kind"] == "full"


@pytest.mark.long
def test_a_differential_of_messages_that_only_backups_have_is_refused(social: Social) -> None:
    social.full()
    for _ in range(3):
        social.send(social.delta)
    social.backup("incremental")
    truth.delete_records(social.bootstrap, social.delta, {0: 2})
    with pytest.raises(
        NeedsFull, match=r"backups since have them: .*offsets \[0, 2\) were deleted"
    ) as refused:
        social.backup("differential")
    assert "--mode incremental" in refused.value.hint
    assert social.rows("SELECT 1 AS one FROM audit WHERE action = 'queue gap'") == []
    own = social.send(social.delta)
    assert social.stored(social.backup("incremental")["backup_id"]) == [own]
    social.send(social.delta)
    social.send(social.delta)
    truth.delete_records(social.bootstrap, social.delta, {0: 5})
    with pytest.raises(NeedsFull, match="were lost before they were backed up"):
        social.backup("differential")


# --- what is refused, and what writes nothing


def test_a_run_that_waited_for_another_one_goes_on_from_there(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where queues end is looked at when no other backup of them is at work any more."""
    social.full()
    acquire = Lease.acquire
    sent: list[Message] = []

    def behind_another(*arguments: Any, **named: Any) -> Lease:
        monkeypatch.undo()
        sent.append(social.send(social.delta))
        social.backup("incremental")
        return acquire(*arguments, **named)

    monkeypatch.setattr(Lease, "acquire", behind_another)
    found = social.backup("incremental")
    assert (len(sent), found["entries"]) == (1, 0)
    assert social.rows("SELECT COUNT(*) AS gaps FROM audit WHERE action = 'queue gap'") == [{"gaps": 0}]


def test_a_catalog_of_an_older_version_is_brought_up_to_date_first(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = social.full()
    own = social.send(social.delta)
    migrate = CatalogWriter.migrate
    done: list[str] = []

    def migrated(writer: CatalogWriter) -> Any:
        done.append("migrate")
        return migrate(writer)

    read = planner.read_histories

    def histories(*arguments: Any) -> Any:
        done.append("read")
        return read(*arguments)

    monkeypatch.setattr(CatalogWriter, "migrate", migrated)
    monkeypatch.setattr(planner, "read_histories", histories)
    found = social.backup("incremental")
    assert (done[:2], found["parent"]) == (["migrate", "read"], full["backup_id"])
    assert social.stored(found["backup_id"]) == [own]


def test_what_makes_no_sense_is_refused(social: Social) -> None:
    for mode in ("full", "auto"):
        with pytest.raises(UsageProblem, match="needs a snapshot"):
            social.backup(mode)
    for mode in ("differential", "incremental"):
        with pytest.raises(NeedsFull, match="no backup of social"):
            social.backup(mode)
    with pytest.raises(NotFound, match=r"nothing\.\*"):
        social.full(topics=("nothing.*",))
    with pytest.raises(NotFound, match=r"cannot be read"):
        social.full(config=str(social.folder / "none.yaml"))
    with pytest.raises(UsageProblem):
        social.full(source="not/a/name")
    assert social.tree() == {path for path in social.tree() if path.startswith("catalog/")}


def test_patterns_name_queues(social: Social) -> None:
    found = social.full(dry_run=True, topics=(f"{social.delta[:-2]}.*", f".{social.journal[1:]}"))
    assert found["topics"] == 2


def test_a_dry_run_writes_nothing(social: Social) -> None:
    social.send(social.delta)
    before = social.tree()
    told = social.full(dry_run=True)
    assert (told["dry_run"], told["kind"], told["snapshot"]["copied"]) == (True, "full", 1)
    assert social.tree() == before
    social.full()
    social.send(social.delta)
    before = social.tree()
    told = social.backup("differential", dry_run=True)
    assert (told["kind"], told["offsets"]) == ("cumulative", 1)
    assert social.tree() == before


# --- much and little


@pytest.mark.long
def test_much_is_read_by_spark_with_the_same_result(
    social: Social, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_ONE_TASK", 1)
    monkeypatch.setattr(splits, "LEAST_OFFSETS_PER_TASK", 1)
    front = social.send(social.delta, 0, "t1")
    social.send(social.delta, 0, "t2")
    social.send(social.delta, 0, "t2", "rollback")
    full = social.full()
    assert social.open_at(full["backup_id"]) == {"t1"}
    own = [social.send(social.delta, n % 2, "t3" if n else "") for n in range(5)]
    own.append(social.send(social.journal, 0, "t1", "commit"))
    found = social.backup("differential", spark=spark)
    assert social.stored(found["backup_id"]) == ordered(front, *own)
    assert social.open_at(found["backup_id"]) == {"t3"}
    assert (found["carried"], found["open_transactions"]) == (1, 1)


# --- the command


def test_by_command_without_spark_and_with_exit_codes(
    social: Social, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "spark_session", None)
    cli = Commands(capsys)
    command = ["backup", "queue", "social", "--pattern", social.delta, "--pattern", social.journal]
    command += ["--bootstrap-server", social.bootstrap, "--repo", str(social.place)]
    command += ["--engine-schema", str(social.schema), "--engine-config", str(social.config), "--json"]
    snapshot = ("--snapshot-folder", str(social.snapshot))
    social.send(social.delta)
    code, _, err = cli.run(*command, *snapshot)
    assert (code, err) == (0, "")
    social.send(social.delta)
    code, out, err = cli.run(*command, "--mode", "differential", "--note", "hourly")
    assert (code, err) == (0, "")
    result = json.loads(out.splitlines()[-1])
    assert (result["event"], result["kind"], result["entries"]) == ("result", "cumulative", 1)
    assert social.rows("SELECT note FROM backups WHERE number = 2") == [{"note": "hourly"}]
    assert "queue_histories" in cli.out(*command, "--explain", "--mode", "incremental")
    truth.delete_records(social.bootstrap, social.delta, {0: 2})
    social.send(social.delta)
    truth.delete_records(social.bootstrap, social.delta, {0: 3})
    code, out, err = cli.run(*command)
    assert (code, "offsets [2, 3) were deleted" in out + err) == (9, True)
    cli.out(*command, "--tid-header", "number", "--mode", "full", *snapshot)
    social.send(social.delta)
    cli.fails(5, *command, "--tid-header", "number")


def test_messages_of_open_transactions_are_in_front_of_a_differential(social: Social) -> None:
    social.send(social.delta)
    front = social.send(social.delta, 0, "t1", "begin")
    social.send(social.delta, 0, "t2")
    also = social.send(social.delta, 0, "t1")
    social.send(social.delta, 0, "t2", "commit")
    full = social.full()
    assert social.open_at(full["backup_id"]) == {"t1"}
    own = [
        social.send(social.delta),
        social.send(social.delta, 1, "t3"),
        social.send(social.delta, 0, "t1", "commit"),
    ]
    found = social.backup("differential")
    assert social.stored(found["backup_id"]) == ordered(front, also, *own)
    assert (found["parent"], found["kind"], found["carried"]) == (full["backup_id"], "cumulative", 2)
    assert social.open_at(found["backup_id"]) == {"t3"}
    # Once more from the same full: the same, and what came since.
    last = social.send(social.journal)
    again = social.backup("differential")
    assert social.stored(again["backup_id"]) == ordered(front, also, *own, last)
    assert again["parent"] == full["backup_id"]


def test_where_a_transaction_began_is_known_as_long_as_it_is_open(social: Social) -> None:
    social.send(social.delta)
    social.send(social.delta, 0, "t1", "begin")
    social.full()
    for _ in range(2):
        social.send(social.delta)
        backup_id = social.backup("incremental")["backup_id"]
        (row,) = social.rows(f"SELECT * FROM queue_transactions WHERE backup_id = '{backup_id}'")
        assert (row["first_position"], row["first_tid"], row["entries"]) == (1, 2, 1)
        at = f"backup_id = '{backup_id}' AND scope = '{social.delta}' AND region = '0'"
        (position,) = social.rows(f"SELECT no_transaction_position, last_tid FROM queue_positions WHERE {at}")
        assert position == {"no_transaction_position": 1, "last_tid": social.tid}


# --- what a snapshot says of them


def test_the_end_of_a_transaction_may_be_in_another_partition(social: Social) -> None:
    """It is before max_no_transaction_pos of that partition."""
    front = social.send(social.delta, 0, "open", "begin")
    social.send(social.delta, 0, "done")
    social.send(social.delta, 1, "done", "commit")
    last = social.send(social.delta, 1)
    places = {(social.delta, 0): (2, 0), (social.delta, 1): (1, 1), (social.journal, 0): (0, 0)}
    social.tell(3, places)
    assert social.open_at(social.full()["backup_id"]) == {"open"}
    assert social.stored(social.backup("differential")["backup_id"]) == ordered(front, last)
    social.tell(3, places, open_transactions=["open"])
    assert social.open_at(social.full()["backup_id"]) == {"open"}


def test_what_an_open_transaction_wrote_counts_into_the_tid_of_a_snapshot(social: Social) -> None:
    social.send(social.delta)
    front = social.send(social.delta, 0, "t1")
    places = {(social.delta, 0): (2, 1), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)}
    social.tell(1, places)
    with pytest.raises(Refused, match=r"last_tid 1, .*with tid 2") as error:
        social.full()
    assert "open transactions count too" in str(error.value.hint)
    social.tell(2, places)
    assert social.full()["last_tid"] == 2
    assert social.stored(social.backup("differential")["backup_id"]) == [front]


def test_a_snapshot_that_is_open_from_further_back_than_it_says_is_refused(social: Social) -> None:
    social.send(social.delta, 1, "t1", "begin")
    social.send(social.delta)
    social.send(social.delta, 0, "t1")
    places = {(social.delta, 0): (2, 1), (social.delta, 1): (1, 1), (social.journal, 0): (0, 0)}
    social.tell(3, places)
    with pytest.raises(Refused, match=rf"t1 has one at offset 0 of topic {social.delta}, partition 1"):
        social.full()
    social.tell(3, {**places, (social.delta, 1): (1, 0)})
    assert social.open_at(social.full()["backup_id"]) == {"t1"}


# --- ends that were seen before their messages


@pytest.mark.long
def test_messages_later_than_their_commit_are_committed(social: Social) -> None:
    """A message comes to its queue, or to a partition that was not there, when the commit is backed up."""
    social.full()
    sent = [social.send(social.delta, 1, "t1", "begin", tid=1), social.send(social.journal, 0, "t1", tid=2)]
    sent.append(social.send(social.delta, 1, "t1", "commit", tid=5))
    sent.append(social.send(social.delta, 1, "t5", "begin", tid=7))
    first = social.backup("incremental")
    assert social.open_at(first["backup_id"]) == {"t5"}
    admin = AdminClient({"bootstrap.servers": social.bootstrap})
    admin.create_partitions([NewPartitions(social.delta, 3)])[social.delta].result(30)
    truth.until(
        lambda: len(admin.list_topics(timeout=10).topics[social.delta].partitions) == 3, "it is there"
    )
    social.producer = Producer({"bootstrap.servers": social.bootstrap})  # the other one knows of two
    late = [social.send(social.delta, 2, "t1", tid=4), social.send(social.delta, 0, "t1", tid=3)]
    sent += [*late, social.send(social.delta, 0, "t6", "begin", tid=8)]
    second = social.backup("incremental")
    assert social.stored(second["backup_id"]) == ordered(*late, sent[-1])
    assert social.open_at(second["backup_id"]) == {"t5", "t6"}
    maps = {name: f"{name}-restored" for name in (social.delta, social.journal)}
    try:
        put_back(social, "aside", maps=maps, append=False)
        found = [
            (name, record.partition, int(dict(record.headers)["tid"] or b""))
            for name, other in maps.items()
            for _, record in truth.read(social.bootstrap, other)
            if "tid" in dict(record.headers)
        ]
        assert sorted(found) == ordered(*(m for m in sent if m[2] not in (7, 8)))
    finally:
        for name in maps.values():
            truth.delete_topic(social.bootstrap, name)


# --- ends that do not count, and messages that are gone


def test_what_the_queues_delete_meanwhile_is_not_searched(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        social.send(social.journal)
    social.send(social.delta, 1, "t1", "commit", tid=9)
    social.full()
    late = social.send(social.delta, 0, "t1", "begin", tid=8)
    suspects = ending.Open.suspects

    def and_some_go(self: ending.Open, path: str) -> int | None:
        truth.delete_records(social.bootstrap, social.journal, {0: 2})
        return suspects(self, path)

    monkeypatch.setattr(ending.Open, "suspects", and_some_go)
    found = social.backup("incremental")
    assert social.stored(found["backup_id"]) == [late]
    assert social.open_at(found["backup_id"]) == set()


@pytest.mark.long
def test_a_full_drops_transactions_that_lost_messages(social: Social) -> None:
    gone = social.send(social.delta, 0, "gone", "begin")
    social.full()
    social.send(social.delta, 1, "gone")
    social.send(social.delta)
    kept = social.send(social.delta, 0, "kept", "begin")
    found = social.backup("incremental")
    assert social.open_at(found["backup_id"]) == {"gone", "kept"}
    truth.delete_records(social.bootstrap, social.delta, {0: 1})
    # The backups have what the queues have not: those go on.
    social.send(social.delta, 1)
    assert social.open_at(social.backup("incremental")["backup_id"]) == {"gone", "kept"}
    assert social.warnings.getvalue() == ""
    full = social.full()
    assert social.open_at(full["backup_id"]) == {"kept"}
    assert "1 transactions are open and have messages that the queues hold no more, such as gone" in (
        social.warnings.getvalue()
    )
    own = social.send(social.delta)
    assert social.stored(social.backup("differential")["backup_id"]) == ordered(kept, own)
    assert gone[2] < kept[2]
