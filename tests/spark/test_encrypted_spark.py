"""Encrypted backups with the verbs that need Spark: compact, restores by SELECT, the data source, rebuild.

Layer: make test. The tasks get the opened keys with their input, and nothing that a session keeps has them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.encrypted import Host, KeyPair, leaks
from tests.support.encrypted_metadata import names_in_clear, new_key, use_catalog
from tests.support.following import following
from tests.support.kafka_truth import Record
from tests.support.runs import Lab

from lakebackup.encryption.objects import MAGIC
from lakebackup.storage import with_key
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.targets import records as restored_records

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

RECORDS = [
    Record(i % 2, b"secret-key-%03d" % (i % 20), b"secret-value-%d" % i, (), 1_600_000_000_000 + i)
    for i in range(200)
]
SECRETS = (b"secret-key", b"secret-value")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAKEBACKUP_REPO", str(tmp_path / "backups"))
    return tmp_path / "backups"


def back_up(cli: Commands, broker: Broker | Lab, topic: str, *flags: str) -> None:
    cli.output(
        "backup", "topics", topic, "--bootstrap-server", broker.bootstrap, "--groups", "none",
        "--runner", "spark", *flags,
    )  # fmt: skip


def test_a_compacted_topic_and_the_data_source(
    cli: Commands, spark: SparkSession, broker: Broker, topic: Callable[..., str], host: Host, keys: KeyPair,
    repository: Path,
) -> None:  # fmt: skip
    name = topic("latest", partitions=2, **{"cleanup.policy": "compact"})
    truth.produce(broker.bootstrap, name, RECORDS)
    host.has(keys.recipient)
    back_up(cli, broker, name)
    truth.produce(broker.bootstrap, name, RECORDS)
    back_up(cli, broker, name)
    host.has(keys.recipient, identity_file=keys.file)
    assert cli.result("compact")["kept_entries"] == 20
    assert all(file.read_bytes().startswith(MAGIC) for file in repository.rglob("*.data"))
    assert leaks(repository, SECRETS) == []
    query = f"SELECT count(*) AS records FROM records('{name}')"
    assert cli.rows("sql", query, "--engine", "spark") == cli.rows("sql", query)

    options = {"topic": name, "identityFile": str(keys.file)}
    frame = spark.read.format("lakebackup").options(**options).load(str(repository))
    assert frame.count() == cli.rows("sql", query)[0]["records"]
    secret = keys.file.read_text().split()[-1]
    plan = frame._jdf.queryExecution().toString()
    assert secret not in plan
    assert secret not in str(spark.sparkContext.getConf().getAll())
    out = repository.parent / "out"
    cli.output("restore", "topics", name, "--to", f"dir:{out}", "--runner", "spark")
    assert {record.key for _, record in truth.records_below(out)} == {r.key for r in RECORDS}
    assert cli.result("verify", "--decode", "--runner", "spark")["damaged"] == 0


def test_what_a_select_stages_is_encrypted(
    cli: Commands, broker: Broker, topic: Callable[..., str], host: Host, keys: KeyPair, repository: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    name, copy = topic("orders", partitions=2), topic("copy", partitions=2)
    truth.produce(broker.bootstrap, name, RECORDS)
    host.has(keys.recipient)
    back_up(cli, broker, name)
    host.has(identity_file=keys.file)
    staged: list[Path] = []
    forget = restored_records.Records.run

    def looked_at(self: restored_records.Records, *arguments: object, **options: object) -> object:
        staged.extend(repository.glob("restores/*/plan/data/*.data"))
        assert leaks(repository, [*SECRETS, b"masked-secret"]) == []
        return forget(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(restored_records.Records, "run", looked_at)
    select = f"SELECT partition, key, concat('masked-', value) AS value, ts FROM records('{name}')"
    target = f"kafka://{broker.bootstrap}"
    cli.output(
        "restore", "topics", name, "--to", target, "--map", f"{name}={copy}", "--select-records", select
    )
    assert staged
    values = [r.value for rows in truth.contents(broker.bootstrap, copy).values() for r in rows]
    assert sorted(values) == sorted(b"masked-" + (r.value or b"") for r in RECORDS)  # type: ignore[type-var]


def test_a_rebuilt_catalog_knows_the_recipients(
    cli: Commands, broker: Broker, topic: Callable[..., str], host: Host, keys: KeyPair, repository: Path
) -> None:
    name = topic("orders", partitions=2)
    truth.produce(broker.bootstrap, name, RECORDS)
    host.has(keys.recipient)
    back_up(cli, broker, name)
    new = host.key_pair("new")
    host.has(new.recipient, keys.recipient, identity_file=keys.file)
    cli.output("key", "rotate")
    query = "SELECT * FROM data_keys ORDER BY recipient"
    before = cli.rows("sql", query)
    shutil.move(repository / "catalog", repository.parent / "lost")
    (key_object,) = repository.glob("*/backups/*/data-keys/*.json")
    stray_copy = shutil.copy(key_object, key_object.with_name(f"{'0' * 16}.json"))
    host.has()
    assert f"{stray_copy.name} is the object of another data key" in cli.fails(4, "catalog", "rebuild")
    assert cli.rows("sql", query) == before
    assert len(before) == 2
    host.has(identity_file=new.file)
    cli.output("restore", "topics", name, "--to", f"dir:{repository.parent / 'out'}")


def test_followed_batches_have_a_key_each(
    lab: Lab, topic: Callable[..., str], host: Host, keys: KeyPair
) -> None:
    name, copy = topic("follow", partitions=2), topic("copy", partitions=2)
    host.has(identity_file=keys.file)
    with following(lab, name, recipients=(keys.recipient,)) as run:
        for count in (1, 2):
            truth.produce(lab.bootstrap, name, RECORDS)

            def are_stored(count: int = count) -> bool:
                assert not run.outcomes, str(run.outcomes[0])
                return lab.sql("SELECT sum(entries) AS n FROM files") == [{"n": count * len(RECORDS)}]

            truth.until(are_stored, "the records are backed up")
    query = """
    SELECT
      count(DISTINCT f.key_id) = count(DISTINCT f.backup_id) AS one_each,
      count(f.key_id) = count(*) AS encrypted
    FROM files AS f JOIN data_keys AS k ON f.key_id = k.key_id AND f.backup_id = k.backup_id
    """
    (row,) = lab.sql(query)
    assert row == {"one_each": True, "encrypted": True}
    assert all(file.read_bytes().startswith(MAGIC) for file in lab.folder.rglob("*.data"))
    assert leaks(lab.folder, SECRETS) == []
    lab.restore(name, maps={name: copy})
    assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, name)


def test_metadata_is_encrypted_by_every_process(
    lab: Lab,
    cli: Commands,
    topic: Callable[..., str],
    host: Host,
    keys: KeyPair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planner of a follower and the tasks of a restore by SELECT and of a compaction run elsewhere."""
    repository, file = tmp_path / "encrypted", new_key(host)
    monkeypatch.setenv("LAKEBACKUP_REPO", str(repository))
    catalog = use_catalog(tmp_path / "catalog", monkeypatch)
    name = topic("secret-follow", partitions=2, **{"cleanup.policy": "compact"})
    host.has(keys.recipient, identity_file=keys.file, metadata_key_file=file)
    truth.produce(lab.bootstrap, name, RECORDS)
    back_up(cli, lab, name, "--source", "lab")  # this process has the key from now on
    uri = with_key(str(repository))
    with following(lab, name, destination=uri, catalog=str(catalog), recipients=(keys.recipient,)) as run:
        truth.produce(lab.bootstrap, name, RECORDS)

        def are_stored() -> bool:
            assert not run.outcomes, str(run.outcomes[0])
            return cli.rows("sql", "SELECT sum(entries) AS n FROM files") == [{"n": 2 * len(RECORDS)}]

        truth.until(are_stored, "the records are backed up")
    select = f"SELECT partition, key, concat('masked-', value) AS value, ts FROM records('{name}')"
    cli.output("restore", "topics", name, "--to", f"dir:{tmp_path / 'out'}", "--select-records", select)
    assert len([*truth.records_below(tmp_path / "out")]) == 2 * len(RECORDS)
    assert cli.result("compact")["kept_entries"] == 20
    assert cli.result("verify", "--decode", "--runner", "spark")["damaged"] == 0
    keys_of_read = {"identityFile": str(keys.file), "metadataKeyFile": str(file), "catalog": str(catalog)}
    frame = lab.spark.read.format("lakebackup").options(topic=name, **keys_of_read).load(str(repository))
    assert frame.count() == cli.rows("sql", f"SELECT count(*) AS n FROM records('{name}')")[0]["n"]
    assert names_in_clear(repository) == []
    assert leaks(repository, [*SECRETS, b"secret-follow"]) == []
