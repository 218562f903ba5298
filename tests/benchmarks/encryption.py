"""What encryption, of data and of metadata, and signatures cost: backups and restores in turn."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from tests.benchmarks import ours
from tests.benchmarks.data import DataSet, new_name
from tests.benchmarks.measure import Job, Sample, rounds
from tests.benchmarks.report import table
from tests.benchmarks.snapshots import BACKUP, COMMANDS, RESTORE, Contents, Tool, make, tools

from lakebackup.encryption.metadata_key import MetadataKey
from lakebackup.encryption.objects import DataKey
from lakebackup.encryption.recipients import new_identity
from lakebackup.signing.keys import create, write_new
from lakebackup_jobs.demo.broker import Broker

PLAIN, ENCRYPTED, SIGNED, METADATA = "neither", "encrypted", "encrypted and signed", "metadata too"
# The files of the snapshot: how many, and the bytes of each.
_FILES, _FILE_BYTES = 20_000, 100_000
# The catalog of the repository whose metadata is encrypted.
_CATALOG = "catalog-elsewhere"


def encryption(broker: Broker, data: DataSet, session: ours.Session, folder: Path, runs: int) -> str:
    """Return Markdown: full backups of a topic, and restores into a new one, in a warm session."""
    settings = _settings(folder)

    def backup(name: str) -> Sample:
        options = ("--groups", "none", "--mode", "full", "--config", str(settings[name]))
        return session.run(ours.backup_topics(broker.bootstrap, data.topic, folder / name, *options))

    def restore(name: str) -> Sample:
        with new_name(broker.bootstrap, data) as target:
            words = ours.restore_topics(broker.bootstrap, data.topic, folder / name, target)
            return session.run([*words, "--config", settings[name]])

    backups: dict[str, Job] = {name: partial(backup, name) for name in settings}
    restores: dict[str, Job] = {name: partial(restore, name) for name in settings}
    return "\n\n".join(table(rounds(jobs, runs), SIGNED) for jobs in (backups, restores))


def encryption_of_snapshots(folder: Path, runs: int, scale: float) -> str:
    """Return Markdown: first backups of random files and restores of all of them, as whole commands."""
    settings, source = _settings(folder), folder / "source" / "files"
    make(source, round(_FILES * scale), Contents(_FILE_BYTES))
    cold = ours.cold(folder / "command.log")
    variants = {name: Tool(cold, _with_settings(file)) for name, file in settings.items()}
    variants["restic"] = tools(folder)["restic"]

    def step(name: str, words: str) -> Sample | str:
        destination, target = folder / name / "backups", folder / name / "restored"
        shutil.rmtree(destination if words == BACKUP else target, ignore_errors=True)
        if words == BACKUP and name == METADATA:
            shutil.rmtree(folder / _CATALOG, ignore_errors=True)
        return variants[name].step(words, source, destination, target)

    steps = ({name: partial(step, name, words) for name in variants} for words in (BACKUP, RESTORE))
    return "\n\n".join(table(rounds(jobs, runs), SIGNED) for jobs in steps)


def _with_settings(file: Path) -> dict[str, list[str]]:
    return {step: [*words, "--config", str(file)] for step, words in COMMANDS.items()}


def _settings(folder: Path) -> dict[str, Path]:
    """Write the settings of each variant."""
    folder.mkdir(parents=True, exist_ok=True)
    text, recipient = new_identity()
    identity = folder / "identity"
    identity.touch(mode=0o600)
    identity.write_text(text)
    create(folder / "host.key", None)
    metadata_key = folder / "metadata.key"
    write_new(metadata_key, MetadataKey(DataKey.random()).file_content, 0o600)
    encrypts = f'[encryption]\nrecipients = ["{recipient}"]\nidentity_file = "{identity}"\n'
    signs = f'[signing]\nkey_file = "{folder / "host.key"}"\n'
    everything = f'catalog = "{folder / _CATALOG}"\n{encrypts}metadata_key_file = "{metadata_key}"\n{signs}'
    variants = {PLAIN: "", ENCRYPTED: encrypts, SIGNED: encrypts + signs, METADATA: everything}
    files = {}
    for name, content in variants.items():
        files[name] = folder / f"{name.replace(' ', '-')}.toml"
        files[name].write_text(content)
    return files
