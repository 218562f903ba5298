"""Backups of an engine's queues against a real broker.

The tests check which messages a backup stores, which requests it refuses, what it does when the queues
deleted messages, and how it tracks open transactions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.social import SCHEMA, Message, Social, ordered, restore

from lakebackup.errors import NeedsFull, NotFound, Refused, UsageProblem
from lakebackup.plan import splits
from lakebackup.plan.queues import backup as planning
from lakebackup.store.lease import Lease
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.queues.backup import open_transactions as ending
from lakebackup_jobs.queues.backup import planner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


# --- stored messages


def test_a_full_has_no_messages_and_its_snapshot_is_held(social: Social) -> None:
    social.send(social.delta)
    social.send(social.delta, 1, "t1", "begin")
    full = social.full()
    assert (full["kind"], full["entries"], full["last_tid"], full["open_transactions"]) == (
        "full",
        0,
        2,
        1,
    )
    assert social.stored_messages(full["backup_id"]) == []
    assert social.open_at(full["backup_id"]) == {"t1"}
    (point,) = social.rows("SELECT * FROM queue_points")
    (snapshot,) = social.rows("SELECT backup_id FROM backups WHERE source = 'social.snapshot'")
    assert point["snapshot_id"] == full["snapshot"] == snapshot["backup_id"]
    (hold,) = social.rows("SELECT backup_id, source, until_ts FROM holds")
    assert hold == {"backup_id": full["snapshot"], "source": "social.snapshot", "until_ts": None}
    (backup,) = social.rows("SELECT start_ts, end_ts, intact FROM backups WHERE source = 'social'")
    assert (backup["end_ts"] - backup["start_ts"], backup["intact"]) == (1, True)


def test_an_incremental_chain_holds_each_message_once(social: Social) -> None:
    first_message = social.send(social.delta, 0, "long", "begin")
    social.full()
    stored_messages: list[Message] = []
    sent_messages = [first_message]
    links = []
    for step in range(3):
        sent_messages += [social.send(social.delta, step % 2), social.send(social.journal)]
        if step == 1:
            sent_messages.append(social.send(social.delta, 1, "long"))
        if step == 2:
            sent_messages.append(social.send(social.delta, 0, "long", "commit"))
        incremental = social.backup("incremental")
        assert social.open_at(incremental["backup_id"]) == (set() if step == 2 else {"long"})
        links.append((incremental["parent"], incremental["backup_id"]))
        stored_messages += social.stored_messages(incremental["backup_id"])
    assert sorted(stored_messages) == sorted(sent_messages)
    assert [parent for parent, _ in links[1:]] == [backup_id for _, backup_id in links[:-1]]
    rows = social.rows("SELECT start_ts, end_ts, intact FROM backups WHERE source = 'social' ORDER BY number")
    assert [row["start_ts"] for row in rows[1:]] == [row["end_ts"] for row in rows[:-1]]
    assert all(row["intact"] for row in rows)


# --- snapshot.json


def test_a_snapshot_with_wrong_positions_is_refused_and_nothing_is_visible(social: Social) -> None:
    for _ in range(4):
        social.send(social.delta)
    positions = {(social.delta, 0): (4, 2), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)}
    social.write_snapshot_json(3, positions)
    with pytest.raises(Refused, match=r"last_tid 3.*offset 3, with tid 4"):
        social.full()
    social.write_snapshot_json(4, positions, open_transactions=["t9"])
    with pytest.raises(Refused, match="t9 as open, and in the queues it is not"):
        social.full()
    social.write_snapshot_json(4, {**positions, (social.delta, 0): (5, 2)})
    with pytest.raises(Refused, match="ends at 4"):
        social.full()
    assert social.rows("SELECT backup_id FROM backups") == []
    social.write_snapshot_json(4, positions)
    assert social.full()["last_tid"] == 4


# --- the engine's own files


def test_each_backup_holds_the_files_of_the_engine(social: Social) -> None:
    full = social.full()
    social.send(social.delta)
    social.config.write_text("engine: 5\n")
    social.schema.write_text(SCHEMA + "- {version: 2, tid: 9, change: [add, age]}\n")
    differential = social.backup("differential")
    for backup_id, config, schema in (
        (full["backup_id"], "engine: 4\n", SCHEMA),
        (differential["backup_id"], social.config.read_text(), social.schema.read_text()),
    ):
        files = social.rows(f"SELECT role, path FROM files WHERE backup_id = '{backup_id}' ORDER BY role")
        texts = {
            f["role"]: (social.repo / f["path"]).read_text()
            for f in files
            if f["role"] in ("config", "schema")
        }
        assert texts == {"config": config, "schema": schema}
    versions = social.rows(
        f"SELECT version, from_tid, to_tid, change, definition FROM queue_schemas "
        f"WHERE backup_id = '{differential['backup_id']}' ORDER BY version"
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


# --- messages that the queues deleted


def test_a_purge_requires_a_full_and_writes_no_backup(social: Social) -> None:
    for _ in range(3):
        social.send(social.delta)
    full = social.full()
    for _ in range(3):
        social.send(social.delta)
    truth.delete_records(social.bootstrap, social.delta, {0: 5})
    objects_before = social.tree()
    for mode in ("auto", "differential"):
        with pytest.raises(NeedsFull, match=rf"topic {social.delta}, partition 0, offsets \[3, 5\)"):
            social.backup(mode)
    with pytest.raises(NeedsFull):
        social.backup(dry_run=True)
    new_folders = {path.partition("/")[0] for path in social.tree() - objects_before}
    assert new_folders == {"audit", "catalog"}
    audit_rows = social.rows("SELECT subject, detail FROM audit WHERE action = 'queue gap'")
    assert [row["subject"] for row in audit_rows] == ["social"] * 2
    (missing,) = json.loads(audit_rows[0]["detail"])["missing"]
    assert (missing["scope"], missing["from_position"], missing["to_position"]) == (social.delta, 3, 5)

    second_full = social.full()
    (gap,) = social.rows("SELECT backup_id, from_position, to_position, reason, bridged FROM gaps")
    assert gap == {
        "backup_id": second_full["backup_id"], "from_position": 3, "to_position": 5, "reason": "purged",
        "bridged": False,
    }  # fmt: skip
    assert full["backup_id"] != second_full["backup_id"]
    message = social.send(social.delta)
    assert social.stored_messages(social.backup("differential")["backup_id"]) == [message]


def test_a_message_without_a_tid_is_skipped_on_request_and_audited(social: Social) -> None:
    """Later differentials read the message again. They skip it without a new request."""
    social.full()
    social.send(social.delta)
    truth.produce(social.bootstrap, social.delta, [truth.Record(0, b"k", b"v", (), 0)])
    with pytest.raises(Refused, match="has no header 'tid'") as refused:
        social.backup("differential")
    message_position = f"{social.delta}[0]@1"
    assert f"--skip-message '{message_position}'" in refused.value.hint
    with pytest.raises(NotFound, match="reads no such partition"):
        social.backup("differential", skip=(f"{social.delta}[7]@1",))
    assert social.backup("differential", skip=(message_position,))["ended"]["entries"] == 1
    social.send(social.delta)
    assert social.backup("differential")["entries"] == 2
    (entry,) = social.rows("SELECT subject, detail FROM audit WHERE action = 'skip message'")
    assert (entry["subject"], json.loads(entry["detail"])["position"]) == ("social", 1)


@pytest.mark.long
def test_messages_of_a_lost_file_are_backed_up_again(social: Social) -> None:
    """No verify ran. The next backup lists the files that it would depend on, finds that one is missing, and
    continues the newest intact backup."""
    full_id = social.full()["backup_id"]
    messages = [social.send(social.delta)]
    damaged_id = social.backup("incremental")["backup_id"]
    (file,) = social.rows(f"SELECT path FROM files WHERE backup_id = '{damaged_id}' AND role = 'data'")
    (social.repo / file["path"]).unlink()
    messages.append(social.send(social.delta))
    replacement = social.backup("incremental")
    assert f"{file['path']} is missing" in social.warnings.getvalue()
    assert (replacement["parent"], social.stored_messages(replacement["backup_id"])) == (full_id, messages)
    intact_rows = social.rows(
        "SELECT backup_id FROM backups WHERE source = 'social' AND intact ORDER BY number"
    )
    assert [row["backup_id"] for row in intact_rows] == [full_id, replacement["backup_id"]]
    restore(social, "put back")


def test_a_lost_file_whose_messages_the_queues_deleted_requires_a_full(social: Social) -> None:
    social.full()
    social.send(social.delta)
    damaged_id = social.backup("incremental")["backup_id"]
    (file,) = social.rows(f"SELECT path FROM files WHERE backup_id = '{damaged_id}' AND role = 'data'")
    (social.repo / file["path"]).unlink()
    social.send(social.delta)
    truth.delete_records(social.bootstrap, social.delta, {0: 1})
    with pytest.raises(NeedsFull, match="were lost before they were backed up"):
        social.backup("incremental")
    assert social.full()["kind"] == "full"


@pytest.mark.long
def test_a_differential_is_refused_if_only_backups_hold_its_messages(social: Social) -> None:
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
    message = social.send(social.delta)
    assert social.stored_messages(social.backup("incremental")["backup_id"]) == [message]
    social.send(social.delta)
    social.send(social.delta)
    truth.delete_records(social.bootstrap, social.delta, {0: 5})
    with pytest.raises(NeedsFull, match="were lost before they were backed up"):
        social.backup("differential")


# --- concurrent runs, migration, refusals and dry runs


def test_a_run_that_waited_for_another_backup_continues_from_it(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run reads the end offsets of the queues only when it holds the lease."""
    social.full()
    acquire = Lease.acquire
    messages: list[Message] = []

    def acquire_after_other_backup(*arguments: Any, **keywords: Any) -> Lease:
        monkeypatch.undo()
        messages.append(social.send(social.delta))
        social.backup("incremental")
        return acquire(*arguments, **keywords)

    monkeypatch.setattr(Lease, "acquire", acquire_after_other_backup)
    incremental = social.backup("incremental")
    assert (len(messages), incremental["entries"]) == (1, 0)
    assert social.rows("SELECT COUNT(*) AS gaps FROM audit WHERE action = 'queue gap'") == [{"gaps": 0}]


def test_an_older_catalog_is_migrated_before_it_is_read(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = social.full()
    message = social.send(social.delta)
    migrate = CatalogWriter.migrate
    steps: list[str] = []

    def logged_migrate(writer: CatalogWriter) -> Any:
        steps.append("migrate")
        return migrate(writer)

    read_histories = planner.read_histories

    def logged_read_histories(*arguments: Any) -> Any:
        steps.append("read")
        return read_histories(*arguments)

    monkeypatch.setattr(CatalogWriter, "migrate", logged_migrate)
    monkeypatch.setattr(planner, "read_histories", logged_read_histories)
    incremental = social.backup("incremental")
    assert (steps[:2], incremental["parent"]) == (["migrate", "read"], full["backup_id"])
    assert social.stored_messages(incremental["backup_id"]) == [message]


def test_invalid_requests_are_refused_and_write_nothing(social: Social) -> None:
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


def test_topic_patterns_select_queues(social: Social) -> None:
    plan = social.full(dry_run=True, topics=(f"{social.delta[:-2]}.*", f".{social.journal[1:]}"))
    assert plan["topics"] == 2


def test_a_dry_run_writes_nothing(social: Social) -> None:
    social.send(social.delta)
    objects_before = social.tree()
    plan = social.full(dry_run=True)
    assert (plan["dry_run"], plan["kind"], plan["snapshot"]["copied"]) == (True, "full", 1)
    assert social.tree() == objects_before
    social.full()
    social.send(social.delta)
    objects_before = social.tree()
    plan = social.backup("differential", dry_run=True)
    assert (plan["kind"], plan["offsets"]) == ("cumulative", 1)
    assert social.tree() == objects_before


# --- reads with Spark


@pytest.mark.long
def test_spark_reads_many_messages_with_the_same_result(
    social: Social, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_ONE_TASK", 1)
    monkeypatch.setattr(splits, "LEAST_OFFSETS_PER_TASK", 1)
    open_message = social.send(social.delta, 0, "t1")
    social.send(social.delta, 0, "t2")
    social.send(social.delta, 0, "t2", "rollback")
    full = social.full()
    assert social.open_at(full["backup_id"]) == {"t1"}
    messages = [social.send(social.delta, n % 2, "t3" if n else "") for n in range(5)]
    messages.append(social.send(social.journal, 0, "t1", "commit"))
    differential = social.backup("differential", spark=spark)
    assert social.stored_messages(differential["backup_id"]) == ordered(open_message, *messages)
    assert social.open_at(differential["backup_id"]) == {"t3"}
    assert (differential["carried"], differential["open_transactions"]) == (1, 1)


# --- the command


def test_the_command_needs_no_spark_and_returns_exit_codes(
    social: Social, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in ("cli.verb", "lifecycle.planning", "lifecycle.workspace"):
        monkeypatch.setattr(f"lakebackup_jobs.{user}.spark_session", None)
    cli = Commands(capsys)
    command = ["backup", "queue", "social", "--pattern", social.delta, "--pattern", social.journal]
    command += ["--bootstrap-server", social.bootstrap, "--repo", str(social.repo)]
    command += ["--engine-schema", str(social.schema), "--engine-config", str(social.config), "--json"]
    snapshot_flags = ("--snapshot-folder", str(social.snapshot))
    social.send(social.delta)
    exit_code, _, stderr = cli.run(*command, *snapshot_flags)
    assert (exit_code, stderr) == (0, "")
    social.send(social.delta)
    exit_code, stdout, stderr = cli.run(*command, "--mode", "differential", "--note", "hourly")
    assert (exit_code, stderr) == (0, "")
    result = json.loads(stdout.splitlines()[-1])
    assert (result["event"], result["kind"], result["entries"]) == ("result", "cumulative", 1)
    assert social.rows("SELECT note FROM backups WHERE number = 2") == [{"note": "hourly"}]
    assert "queue_histories" in cli.output(*command, "--explain", "--mode", "incremental")
    truth.delete_records(social.bootstrap, social.delta, {0: 2})
    social.send(social.delta)
    truth.delete_records(social.bootstrap, social.delta, {0: 3})
    exit_code, stdout, stderr = cli.run(*command)
    assert (exit_code, "offsets [2, 3) were deleted" in stdout + stderr) == (9, True)
    cli.output(*command, "--tid-header", "number", "--mode", "full", *snapshot_flags)
    social.send(social.delta)
    cli.fails(5, *command, "--tid-header", "number")


def test_a_differential_starts_with_the_messages_of_open_transactions(social: Social) -> None:
    social.send(social.delta)
    begin = social.send(social.delta, 0, "t1", "begin")
    social.send(social.delta, 0, "t2")
    change = social.send(social.delta, 0, "t1")
    social.send(social.delta, 0, "t2", "commit")
    full = social.full()
    assert social.open_at(full["backup_id"]) == {"t1"}
    later_messages = [
        social.send(social.delta),
        social.send(social.delta, 1, "t3"),
        social.send(social.delta, 0, "t1", "commit"),
    ]
    differential = social.backup("differential")
    assert social.stored_messages(differential["backup_id"]) == ordered(begin, change, *later_messages)
    assert (differential["parent"], differential["kind"], differential["carried"]) == (
        full["backup_id"],
        "cumulative",
        2,
    )
    assert social.open_at(differential["backup_id"]) == {"t3"}
    # A second differential of the same full stores the same messages and the new one.
    last_message = social.send(social.journal)
    second_differential = social.backup("differential")
    assert social.stored_messages(second_differential["backup_id"]) == ordered(
        begin, change, *later_messages, last_message
    )
    assert second_differential["parent"] == full["backup_id"]


def test_the_start_of_a_transaction_is_recorded_while_it_is_open(social: Social) -> None:
    social.send(social.delta)
    social.send(social.delta, 0, "t1", "begin")
    social.full()
    for _ in range(2):
        social.send(social.delta)
        backup_id = social.backup("incremental")["backup_id"]
        (transaction,) = social.rows(f"SELECT * FROM queue_transactions WHERE backup_id = '{backup_id}'")
        assert (transaction["first_position"], transaction["first_tid"], transaction["entries"]) == (1, 2, 1)
        partition_filter = f"backup_id = '{backup_id}' AND scope = '{social.delta}' AND region = '0'"
        (position,) = social.rows(
            f"SELECT no_transaction_position, last_tid FROM queue_positions WHERE {partition_filter}"
        )
        assert position == {"no_transaction_position": 1, "last_tid": social.tid}


# --- positions and open transactions in snapshot.json


def test_the_end_of_a_transaction_may_be_in_another_partition(social: Social) -> None:
    """The commit is in partition 1, before the max_no_transaction_pos of that partition."""
    begin = social.send(social.delta, 0, "open", "begin")
    social.send(social.delta, 0, "done")
    social.send(social.delta, 1, "done", "commit")
    last_message = social.send(social.delta, 1)
    positions = {(social.delta, 0): (2, 0), (social.delta, 1): (1, 1), (social.journal, 0): (0, 0)}
    social.write_snapshot_json(3, positions)
    assert social.open_at(social.full()["backup_id"]) == {"open"}
    assert social.stored_messages(social.backup("differential")["backup_id"]) == ordered(begin, last_message)
    social.write_snapshot_json(3, positions, open_transactions=["open"])
    assert social.open_at(social.full()["backup_id"]) == {"open"}


def test_messages_of_open_transactions_count_into_the_last_tid_of_a_snapshot(social: Social) -> None:
    social.send(social.delta)
    open_message = social.send(social.delta, 0, "t1")
    positions = {(social.delta, 0): (2, 1), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)}
    social.write_snapshot_json(1, positions)
    with pytest.raises(Refused, match=r"last_tid 1, .*with tid 2") as error:
        social.full()
    assert "open transactions count too" in str(error.value.hint)
    social.write_snapshot_json(2, positions)
    assert social.full()["last_tid"] == 2
    assert social.stored_messages(social.backup("differential")["backup_id"]) == [open_message]


def test_a_snapshot_with_an_open_transaction_before_its_stated_position_is_refused(social: Social) -> None:
    social.send(social.delta, 1, "t1", "begin")
    social.send(social.delta)
    social.send(social.delta, 0, "t1")
    positions = {(social.delta, 0): (2, 1), (social.delta, 1): (1, 1), (social.journal, 0): (0, 0)}
    social.write_snapshot_json(3, positions)
    with pytest.raises(Refused, match=rf"t1 has one at offset 0 of topic {social.delta}, partition 1"):
        social.full()
    social.write_snapshot_json(3, {**positions, (social.delta, 1): (1, 0)})
    assert social.open_at(social.full()["backup_id"]) == {"t1"}


# --- commits that arrive before their messages


@pytest.mark.long
def test_messages_that_arrive_after_their_commit_are_committed(social: Social) -> None:
    """Messages arrive in an old and in a new partition after the backup of their transaction's commit."""
    social.full()
    messages = [
        social.send(social.delta, 1, "t1", "begin", tid=1),
        social.send(social.journal, 0, "t1", tid=2),
    ]
    messages.append(social.send(social.delta, 1, "t1", "commit", tid=5))
    messages.append(social.send(social.delta, 1, "t5", "begin", tid=7))
    first_backup = social.backup("incremental")
    assert social.open_at(first_backup["backup_id"]) == {"t5"}
    admin = AdminClient({"bootstrap.servers": social.bootstrap})
    admin.create_partitions([NewPartitions(social.delta, 3)])[social.delta].result(30)
    truth.until(
        lambda: len(admin.list_topics(timeout=10).topics[social.delta].partitions) == 3, "it is there"
    )
    # The old producer knows two partitions only.
    social.producer = Producer({"bootstrap.servers": social.bootstrap})
    late_messages = [social.send(social.delta, 2, "t1", tid=4), social.send(social.delta, 0, "t1", tid=3)]
    messages += [*late_messages, social.send(social.delta, 0, "t6", "begin", tid=8)]
    second_backup = social.backup("incremental")
    assert social.stored_messages(second_backup["backup_id"]) == ordered(*late_messages, messages[-1])
    assert social.open_at(second_backup["backup_id"]) == {"t5", "t6"}
    restored_topics = {name: f"{name}-restored" for name in (social.delta, social.journal)}
    try:
        restore(social, "aside", maps=restored_topics, append=False)
        restored_messages = [
            (name, record.partition, int(dict(record.headers)["tid"] or b""))
            for name, restored_topic in restored_topics.items()
            for _, record in truth.read(social.bootstrap, restored_topic)
            if "tid" in dict(record.headers)
        ]
        assert sorted(restored_messages) == ordered(
            *(message for message in messages if message[2] not in (7, 8))
        )
    finally:
        for name in restored_topics.values():
            truth.delete_topic(social.bootstrap, name)


# --- commits without messages, and deleted messages


def test_messages_deleted_during_a_backup_are_not_searched(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        social.send(social.journal)
    social.send(social.delta, 1, "t1", "commit", tid=9)
    social.full()
    late_message = social.send(social.delta, 0, "t1", "begin", tid=8)
    suspects = ending.Open.suspects

    def suspects_after_deletion(self: ending.Open, path: str) -> int | None:
        truth.delete_records(social.bootstrap, social.journal, {0: 2})
        return suspects(self, path)

    monkeypatch.setattr(ending.Open, "suspects", suspects_after_deletion)
    incremental = social.backup("incremental")
    assert social.stored_messages(incremental["backup_id"]) == [late_message]
    assert social.open_at(incremental["backup_id"]) == set()


@pytest.mark.long
def test_a_full_drops_transactions_that_lost_messages(social: Social) -> None:
    deleted_begin = social.send(social.delta, 0, "gone", "begin")
    social.full()
    social.send(social.delta, 1, "gone")
    social.send(social.delta)
    kept_begin = social.send(social.delta, 0, "kept", "begin")
    incremental = social.backup("incremental")
    assert social.open_at(incremental["backup_id"]) == {"gone", "kept"}
    truth.delete_records(social.bootstrap, social.delta, {0: 1})
    # The backups hold the messages that the queues deleted, so both transactions stay open.
    social.send(social.delta, 1)
    assert social.open_at(social.backup("incremental")["backup_id"]) == {"gone", "kept"}
    assert social.warnings.getvalue() == ""
    full = social.full()
    assert social.open_at(full["backup_id"]) == {"kept"}
    assert "1 transactions are open and have messages that the queues hold no more, such as gone" in (
        social.warnings.getvalue()
    )
    message = social.send(social.delta)
    assert social.stored_messages(social.backup("differential")["backup_id"]) == ordered(kept_begin, message)
    assert deleted_begin[2] < kept_begin[2]
