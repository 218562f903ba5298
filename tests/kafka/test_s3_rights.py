"""Commands that need a JVM or a broker, with exactly the rights of the table in docs/s3.md.

The other commands are in tests/contract/test_s3_rights.py. Requests of Spark's JVM go through the proxy too,
those of its Python workers do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest
import typer
from tests.contract.test_s3_rights import LINES as OTHER_LINES
from tests.kafka.test_s3 import S3Lab
from tests.support import consumers
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed
from tests.support.command_line import Commands
from tests.support.following import following, until_stored
from tests.support.kafka_truth import Record
from tests.support.log_tasks import busy
from tests.support.s3 import S3Proxy
from tests.support.s3_commands import Lines, S3Commands, s3_commands
from tests.support.s3_faults import FaultProxy, right_of
from tests.support.s3_roles import Rights, acting_as, rights_by_command

from lakebackup.store import proof
from lakebackup_jobs.cli.app import Group, app
from lakebackup_jobs.demo.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.s3]

_BROKER = "--bootstrap-server {broker}"
_TASK = f"log start task{{round}} {_BROKER} --pattern {{feed}} --no-run"
LINES: Lines = {
    "snapshots": {
        "catalog import": ("catalog import {rows}",),
        "catalog rebuild": ("catalog rebuild --catalog s3://{bucket}/catalog{run}",),
    },
    "topics": {"compact": ("compact --source prod --all-keyed",)},
    "log": {
        "log compact": ("log compact shop",),
        "log merge": ("log merge shop --write-snapshot-storage {out}",),
        "log snapshot": ("log snapshot shop",),
    },
    "kafka": {
        "backup topics": (f"backup topics {{topic}} --source cluster {_BROKER}",),
        "restore topics": (
            "restore topics {topic} --source cluster --to kafka://{broker} --map {topic}={topic}-{run}",
        ),
        "restore groups": ("restore groups {group} --source cluster --to kafka://{broker} --force",),
        "backup queue": (
            f"backup queue social --snapshot-folder {{tree}} --pattern {{queue}} --mode full {_BROKER}",
        ),
        "restore queue": (
            "restore queue social --to kafka://{broker} --into {out} --map {queue}={queue}-{run}",
        ),
        "log start": (f"{_TASK} --endts {{end_ts}}",),
        "log status": ("log status",),
        "log pause": ("log pause task{round}",),
        "log resume": ("log resume task{round} --no-run",),
        "log run": ("log run task{round}",),
        "log stop": (f"{_TASK.replace('task', 'other')}", "log stop other{round}"),
    },
}
RECORDS = [Record(0, b"k", b"v", (), 1_600_000_000_000)] * 10
FOLLOW = "backup topics --follow"
# Servers, and commands that use no repository.
WITHOUT_RIGHTS = {
    "config", "notify", "evidence check", "key add", "key create", "key list", "key remove", "manage",
    *(f"serve {name}" for name in ("connect", "http", "mcp", "metrics", "thrift")),
}  # fmt: skip


def commands_of(group: Group, prefix: str = "") -> Iterator[str]:
    """Yield the commands of a group, and of the groups in it."""
    for name in group.commands_by_name:
        command = group.commands_by_name.find(name)
        if isinstance(command, Group):
            yield from commands_of(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def test_every_command_has_rights_that_are_tried() -> None:
    documented = set(rights_by_command())
    tried = {command for lines in (OTHER_LINES, LINES) for kind in lines.values() for command in kind}
    assert tried | {FOLLOW} == documented
    all_commands = set(commands_of(cast("Group", typer.main.get_command(app))))
    assert documented - {FOLLOW, "prune --delete"} == all_commands - WITHOUT_RIGHTS


@pytest.fixture
def s3_repository(
    kind: str,
    s3: S3Proxy,
    broker: Broker,
    topic: Callable[..., str],
    cli: Commands,
    spark: SparkSession,
    empty_catalog: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[S3Commands]:
    """Commands on a repository of a kind in a bucket of its own."""
    bucket = s3.bucket()
    with FaultProxy(s3.port) as proxy:
        configuration = cast("Any", spark)._jsc.hadoopConfiguration()
        configuration.set(f"fs.s3a.bucket.{bucket}.endpoint", proxy.endpoint)
        repository = s3_commands(kind, bucket, proxy, cli, empty_catalog, tmp_path, monkeypatch)
        if kind == "kafka":
            repository.fields |= _kafka_fields(broker, topic, tmp_path)
        yield repository


def _kafka_fields(broker: Broker, topic: Callable[..., str], folder: Path) -> dict[str, Any]:
    """Write a topic with a consumer group, an engine's queue and a change feed; returns fields of lines."""
    orders, group = topic("orders"), f"group-{uuid4().hex[:8]}"
    truth.produce(broker.bootstrap, orders, RECORDS)
    consumers.commit(broker.bootstrap, group, {(orders, 0): 7})
    (folder / "tree").mkdir()
    (folder / "tree" / "000001.sst").write_bytes(b"x" * 1000)
    feed = ChangeFeed(partitions=2)
    feed_topic = topic("feed", partitions=2)
    busy(feed, feed.create_table("shop", "orders"), 20)
    feed.send(broker.bootstrap, feed_topic)
    return {
        "broker": broker.bootstrap, "topic": orders, "group": group, "tree": folder / "tree",
        "queue": topic("queue"), "feed": feed_topic, "end_ts": feed.last_ts,
    }  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("kind", LINES)
def test_the_documented_rights_suffice_and_each_is_used(kind: str, s3_repository: S3Commands) -> None:
    lines_by_rights: dict[Rights, dict[str, tuple[str, ...]]] = {}
    for command, lines in LINES[kind].items():
        lines_by_rights.setdefault(rights_by_command()[command], {})[command] = lines
    for commands in lines_by_rights.values():
        s3_repository.check_rights(commands)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["kafka"])
def test_following_needs_the_documented_rights(
    s3_repository: S3Commands, spark: SparkSession, broker: Broker
) -> None:
    rights, proxy = rights_by_command()[FOLLOW], s3_repository.proxy
    lab, name = S3Lab(spark, broker.bootstrap, s3_repository.uri), s3_repository.fields["topic"]
    line = f"{FOLLOW} {name} --source refused --runner spark {_BROKER}"
    code, stderr, _ = s3_repository.run(line, rights.needed - {"s3:DeleteObject"})
    assert (code, "DeleteObject" in stderr) == (6, True), stderr
    for allowed in (rights.needed, rights.all_actions):
        s3_repository.forget_proof()
        proof._proved.clear()
        proxy.requests.clear()
        truth.produce(broker.bootstrap, name, RECORDS)
        with acting_as(allowed, proxy), following(lab, name) as run:
            until_stored(run, lab, name)
        assert isinstance(run.outcomes[0], dict), run.outcomes
        actions = {right_of(method, path) for method, path, _ in proxy.requests}
        assert actions == rights.all_actions
