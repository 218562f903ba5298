"""Other tools, given by environment variables; a tool that is not given is not run.

PEER_KCAT: kcat. PEER_KAFKA_BACKUP: github.com/osodevops/kafka-backup (Rust, MIT).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.benchmarks.data import DataSet
from tests.benchmarks.measure import Cost, of_command

KCAT = "PEER_KCAT"
KAFKA_BACKUP = "PEER_KAFKA_BACKUP"
# Its restore sends this many records a request, whatever their size. With the default of 1,000 the
# broker refuses 10-KB records, because a request then passes message.max.bytes (1 MiB).
_RECORDS_A_REQUEST = {"default": 1000, "large": 64}


def program(variable: str) -> str | None:
    """Where the tool is, None when nobody said."""
    name = os.environ.get(variable)
    return shutil.which(name) if name else None


def version(variable: str) -> str:
    """What the tool says of itself, in one line."""
    found = program(variable)
    if not found:
        return "not run"
    flag = "-V" if variable == KCAT else "--version"
    said = subprocess.run([found, flag], capture_output=True, text=True, check=False).stdout
    number = re.search(r"\d+\.\d+\.\d+", said)
    return f"{Path(found).name} {number.group() if number else 'of unknown version'}"


def kcat(bootstrap: str, data: DataSet, log: Path) -> Cost:
    """Every value to /dev/null."""
    script = 'exec "$0" -q -C -e -b "$1" -t "$2" -o beginning >/dev/null'
    return of_command(["/bin/sh", "-c", script, str(program(KCAT)), bootstrap, data.topic], log)


class KafkaBackup:
    """The Rust tool on a folder: zstd level 3 and segments of 128 MiB (its defaults), no sync to disk."""

    def __init__(self, bootstrap: str, data: DataSet, folder: Path) -> None:
        self._bootstrap, self._data, self._folder = bootstrap, data, folder
        self._log = folder.with_suffix(".log")

    def backup(self) -> Cost:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        kafka = {"bootstrap_servers": [self._bootstrap], "topics": {"include": [self._data.topic]}}
        options = {
            "compression": "zstd",
            "continuous": False,
            "stop_at_current_offsets": True,  # as ours: what is there when it starts
            "include_offset_headers": False,  # as ours: records as they are
        }
        return self._run("backup", {"source": kafka, "backup": options})

    def restore(self, target: str, *, defaults: bool = False) -> Cost:
        kafka = {"bootstrap_servers": [self._bootstrap], "topics": {"include": [self._data.topic]}}
        size = "default" if defaults or self._data.value_bytes < 1000 else "large"
        options = {
            "topic_mapping": {self._data.topic: target},
            "produce_batch_size": _RECORDS_A_REQUEST[size],
        }
        return self._run("restore", {"target": kafka, "restore": options})

    def _run(self, verb: str, parts: dict[str, object]) -> Cost:
        config = {
            "mode": verb,
            "backup_id": "bench",
            "storage": {"backend": "filesystem", "path": str(self._folder)},
            "metrics": {"enabled": False},  # it listens on every interface otherwise
            **parts,
        }
        path = self._folder.with_suffix(".yaml")
        path.write_text(json.dumps(config), "utf-8")  # JSON is YAML
        return of_command([str(program(KAFKA_BACKUP)), verb, "--config", str(path)], self._log)
