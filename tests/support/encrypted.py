"""Machines with recipients or identities, and what a thief finds in a repository."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakebackup.encryption.recipients import new_identity, protected
from lakebackup_jobs.runtime import identities

_SETTINGS = ("RECIPIENTS", "RECIPIENTS_FILE", "IDENTITY_FILE", "PASSPHRASE", "PASSPHRASE_FILE")


@dataclass(frozen=True)
class KeyPair:
    """An identity file, and its recipient."""

    file: Path
    recipient: str


class Host:
    """The machine of the next commands: its settings `[encryption]`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch, self.folder = monkeypatch, folder
        folder.mkdir(exist_ok=True)
        monkeypatch.setattr(identities, "_options", None)

    def key_pair(self, name: str, passphrase: str | None = None) -> KeyPair:
        """Write the file of a new identity."""
        text, recipient = new_identity()
        content = text.encode() if passphrase is None else protected(text, passphrase)
        return KeyPair(self.write(name, content), recipient)

    def write(self, name: str, content: bytes) -> Path:
        """Write a file that only this account may read."""
        file = self.folder / name
        file.write_bytes(content)
        file.chmod(0o600)
        return file

    def has(self, *recipients: str, **settings: str | Path) -> None:
        """Set the settings of the next commands, and no others."""
        for name in _SETTINGS:
            self._monkeypatch.delenv(f"LAKEBACKUP_ENCRYPTION__{name}", raising=False)
        if recipients:
            self._monkeypatch.setenv("LAKEBACKUP_ENCRYPTION__RECIPIENTS", json.dumps(recipients))
        for name, value in settings.items():
            self._monkeypatch.setenv(f"LAKEBACKUP_ENCRYPTION__{name.upper()}", str(value))


def texts_in(repository: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield what a thief reads in each object: its bytes, and the values in tables."""
    for file in sorted(path for path in repository.rglob("*") if path.is_file()):
        content = file.read_bytes()
        yield file, content
        if content.startswith(b"PAR1"):
            yield file, json.dumps(pq.read_table(io.BytesIO(content)).to_pylist(), default=repr).encode()
