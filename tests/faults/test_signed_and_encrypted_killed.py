"""Runs that encrypt and sign are killed before each of their steps; the next run completes them.

Layer: make test for the steps that leave distinct states; make test-all for every step. It is worth its
seconds: a key, a signature and an entry of the audit log are objects of their own, and a kill between two of
them must leave no backup that cannot be read, and nothing that looks like a forgery.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.encrypted import Host, KeyPair, leaks
from tests.support.faults import Killed, Steps, expire_leases, watched
from tests.support.kafka_truth import Record
from tests.support.social import Social

from lakebackup.signing.keys import create
from lakebackup_jobs.demo.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka

#: The steps that leave a state which a run without keys does not know.
STATES = ("put data key", "put signature", "put audit", "commit backups")


@dataclass
class Lab:
    """A machine with keys, and a repository with backups that they encrypt and sign. `runs` counts the runs
    that were watched."""

    commands: Commands
    folder: Path
    runs: int = 0

    @property
    def repository(self) -> Path:
        return self.folder / "backups"

    def start_over(self) -> None:
        """Put the repository as it was at first in its place."""
        shutil.rmtree(self.repository)
        shutil.copytree(self.folder / "original", self.repository)

    def watch(self, words: Sequence[str | Path], kill_at: int | str | None = None) -> Steps:
        """Run a command that dies before a step, if it comes to it. Returns the steps that it took."""
        self.runs += 1
        with watched(self.folder / f"steps-{self.runs}", kill_at=kill_at) as steps, suppress(Killed):
            self.commands.run(*words)
        expire_leases(self.repository)
        return steps

    def assert_in_order(self) -> None:
        """Check that every object can be read, that all is signed, and that a thief finds nothing."""
        decoded = self.commands.result("verify", "--decode")
        assert (decoded["damaged"], decoded["missing"], decoded["changed"]) == (0, 0, 0)
        signed = self.commands.result("verify", "--signatures", "--public-key", self.folder / "host.key.pub")
        assert (signed["findings"], signed["unsigned"]) == ([], 0)
        assert leaks(self.repository, [b"hush-"]) == []


@pytest.fixture
def keyed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    host: Host,
    keys: KeyPair,
) -> Lab:
    host.has(keys.recipient, identity_file=keys.file)
    create(tmp_path / "host.key", None)
    monkeypatch.setenv("LAKEBACKUP_SIGNING__KEY_FILE", str(tmp_path / "host.key"))
    monkeypatch.setenv("LAKEBACKUP_REPO", str(tmp_path / "backups"))
    return Lab(Commands(capsys), tmp_path)


def back_up(lab: Lab, broker: Broker, topic: str, *flags: str) -> None:
    records = [
        Record(number % 2, b"hush-key-%d" % (number % 7), b"hush-%d" % number, (), 1_600_000_000_000 + number)
        for number in range(40)
    ]
    truth.produce(broker.bootstrap, topic, records)
    servers = ("--bootstrap-server", broker.bootstrap, "--groups", "none", "--source", "prod")
    lab.commands.output("backup", "topics", topic, *servers, *flags)


def merge(lab: Lab, broker: Broker, topic: str) -> list[str]:
    for _ in range(3):
        back_up(lab, broker, topic)
    return ["merge", "1", "--source", "prod"]


def prune(lab: Lab, broker: Broker, topic: str) -> list[str]:
    back_up(lab, broker, topic)
    back_up(lab, broker, topic)
    back_up(lab, broker, topic, "--mode", "full")
    lab.commands.output("policy", "set", "prod", "--redundancy", "1")
    return ["prune", "--source", "prod", "--delete"]


def compact(lab: Lab, broker: Broker, topic: str) -> list[str]:
    for _ in range(2):
        back_up(lab, broker, topic)
    return ["compact", topic, "--all-keyed", "--source", "prod"]


VERBS = {"merge": merge, "prune": prune, "compact": compact}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("verb", "steps"),
    [
        ("merge", STATES),
        *(pytest.param(verb, None, marks=pytest.mark.long, id=f"{verb}-every step") for verb in VERBS),
    ],
)
def test_a_killed_run_is_completed(
    keyed: Lab,
    broker: Broker,
    topic: Callable[..., str],
    spark: SparkSession,
    verb: str,
    steps: Sequence[str] | None,
) -> None:
    words = VERBS[verb](keyed, broker, topic("killed", partitions=2))
    if verb == "compact":
        keyed.commands = replace(keyed.commands, spark=spark)
    assert_completed(keyed, words, steps)


@pytest.mark.long
def test_a_killed_backup_of_queues_is_completed(
    keyed: Lab,
    broker: Broker,
    topic: Callable[..., str],
    empty_catalog: Path,
) -> None:
    social = Social(broker.bootstrap, keyed.folder, empty_catalog, topic("delta", 2), topic("journal"))
    social.config.write_text("password: hush-config\n")
    queues = ("--pattern", social.delta, "--pattern", social.journal, "--bootstrap-server", social.bootstrap)
    files = ("--engine-config", social.config, "--engine-schema", social.schema)
    words = ("backup", "queue", "social", *queues, *files, "--mode")
    social.send(social.delta, 0, value=b"hush-before")
    keyed.commands.output(*words, "full", "--snapshot-folder", social.snapshot)
    social.send(social.delta, 1, value=b"hush-after")
    assert_completed(keyed, [*words, "differential"], None)


def assert_completed(lab: Lab, words: Sequence[str | Path], steps: Sequence[str] | None) -> None:
    """Kill a command before each of some steps, or before every step; the same command completes its work."""
    shutil.copytree(lab.repository, lab.folder / "original")
    names = lab.watch(words).names()
    lab.assert_in_order()
    kills = range(1, len(names) + 1) if steps is None else [step for step in steps if step in names]
    assert kills
    for kill_at in kills:
        lab.start_over()
        assert lab.watch(words, kill_at).dead, kill_at
        code, _, err = lab.commands.run(*words)
        assert code == 0, (kill_at, err)
        lab.assert_in_order()
