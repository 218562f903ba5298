"""What encryption costs: backups and restores of one topic with and without it, in turn."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.benchmarks import ours
from tests.benchmarks.data import DataSet, new_name
from tests.benchmarks.measure import Job, Sample, rounds
from tests.benchmarks.report import table

from lakebackup.encryption.recipients import new_identity
from lakebackup_jobs.demo.broker import Broker

PLAIN, ENCRYPTED = "not encrypted", "encrypted"


def encryption(broker: Broker, data: DataSet, session: ours.Session, folder: Path, runs: int) -> str:
    """Return Markdown: full backups, and restores into a new topic, in a warm session."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {PLAIN: _settings(folder, ""), ENCRYPTED: _encrypted_settings(folder)}

    def backup(name: str) -> Sample:
        options = ("--groups", "none", "--mode", "full", "--config", str(settings[name]))
        return session.run(ours.backup_topics(broker.bootstrap, data.topic, folder / name, *options))

    def restore(name: str) -> Sample:
        with new_name(broker.bootstrap, data) as target:
            words = ours.restore_topics(broker.bootstrap, data.topic, folder / name, target)
            return session.run([*words, "--config", settings[name]])

    backups: dict[str, Job] = {name: partial(backup, name) for name in settings}
    restores: dict[str, Job] = {name: partial(restore, name) for name in settings}
    return "\n\n".join(table(rounds(jobs, runs), ENCRYPTED) for jobs in (backups, restores))


def _encrypted_settings(folder: Path) -> Path:
    text, recipient = new_identity()
    identity = folder / "identity"
    identity.write_text(text)
    identity.chmod(0o600)
    return _settings(folder, f'[encryption]\nrecipients = ["{recipient}"]\nidentity_file = "{identity}"\n')


def _settings(folder: Path, text: str) -> Path:
    file = folder / f"{'encrypted' if text else 'plain'}.toml"
    file.write_text(text)
    return file
