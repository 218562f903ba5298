"""Runs other tools, found on the path or where PEER_KCAT, PEER_KAFKA_BACKUP, PEER_RESTIC and so on say.

Missing tools are not run. kafka-backup is github.com/osodevops/kafka-backup (Rust, MIT).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.data import DataSet
from tests.benchmarks.measure import NOT_RUN, Run, Sample, of_command

KCAT, KAFKA_BACKUP = "kcat", "kafka-backup"
#: Each tool with the argument that prints its version.
TOOLS = {
    KAFKA_BACKUP: "--version",
    KCAT: "-V",
    "restic": "version",
    "rclone": "version",
    "rsync": "--version",
    "kopia": "--version",
    "sha256sum": "--version",
}
# The restore of kafka-backup sends this many records per request, whatever their size. With the default of
# 1,000 the broker refuses 10-KB records, because a request then exceeds message.max.bytes (1 MiB).
_RECORDS_A_REQUEST = {"default": 1000, "large": 64}


def program(name: str) -> str | None:
    """Return the path of a tool, or None when it is missing."""
    return shutil.which(os.environ.get(f"PEER_{name.upper().replace('-', '_')}", name))


def versions() -> str:
    """Return the versions of all tools, in one line."""
    return "; ".join(f"{name} {_version(name, word)}" for name, word in TOOLS.items())


def _version(name: str, word: str) -> str:
    path = program(name)
    if not path:
        return NOT_RUN
    output = subprocess.run([path, word], capture_output=True, text=True, check=False).stdout
    number = re.search(r"\d+(\.\d+)+", output)
    return number.group() if number else "of unknown version"


def command(log: Path) -> Run:
    """Return a function that runs other tools' commands, whose first word is the tool's name."""

    def run(words: Sequence[object]) -> Sample | str:
        name, *arguments = map(str, words)
        path = program(name)
        return Sample(of_command([path, *arguments], log)) if path else NOT_RUN

    return run


def kcat(bootstrap: str, data: DataSet, log: Path) -> Sample | str:
    """Write every value of the topic to /dev/null."""
    script = 'exec "$0" -q -C -e -b "$1" -t "$2" -o beginning >/dev/null'
    path = program(KCAT)
    return command(log)(["sh", "-c", script, path, bootstrap, data.topic]) if path else NOT_RUN


class KafkaBackup:
    """The Rust tool with a folder: zstd level 3, segments of 128 MiB (its defaults), and no sync to disk."""

    def __init__(self, bootstrap: str, data: DataSet, folder: Path) -> None:
        self._bootstrap, self._data, self._folder = bootstrap, data, folder
        self._run_command = command(folder.with_suffix(".log"))

    def backup(self) -> Sample | str:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        kafka = {"bootstrap_servers": [self._bootstrap], "topics": {"include": [self._data.topic]}}
        options = {
            "compression": "zstd",
            "continuous": False,
            "stop_at_current_offsets": True,  # like lakebackup: records that exist when it starts
            "include_offset_headers": False,  # like lakebackup: records unchanged
        }
        return self._run("backup", {"source": kafka, "backup": options})

    def restore(self, target: str, *, defaults: bool = False) -> Sample | str:
        kafka = {"bootstrap_servers": [self._bootstrap], "topics": {"include": [self._data.topic]}}
        size = "default" if defaults or self._data.value_bytes < 1000 else "large"
        options = {
            "topic_mapping": {self._data.topic: target},
            "produce_batch_size": _RECORDS_A_REQUEST[size],
        }
        return self._run("restore", {"target": kafka, "restore": options})

    def _run(self, verb: str, parts: dict[str, object]) -> Sample | str:
        config = {
            "mode": verb,
            "backup_id": "bench",
            "storage": {"backend": "filesystem", "path": str(self._folder)},
            "metrics": {"enabled": False},  # otherwise it listens on every interface
            **parts,
        }
        path = self._folder.with_suffix(".yaml")
        path.write_text(json.dumps(config), "utf-8")  # JSON is YAML
        return self._run_command([KAFKA_BACKUP, verb, "--config", path])
