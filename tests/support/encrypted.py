"""Machines with recipients or identities, and what a thief finds in a repository."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import fastavro
import pyarrow.parquet as pq
import pytest
from backports import zstd

from lakebackup.encryption.objects import Keyring
from lakebackup.encryption.recipients import Identities, new_identity, protected
from lakebackup.storage import open_storage
from lakebackup.store import data_keys
from lakebackup_jobs.lifecycle.keyring import open_key
from lakebackup_jobs.runtime import identities

_SETTINGS = (
    "RECIPIENTS", "RECIPIENTS_FILE", "IDENTITY_FILE", "PASSPHRASE", "PASSPHRASE_FILE", "PASSPHRASE_COMMAND",
    "METADATA_KEY_FILE",
)  # fmt: skip


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


def leaks(repository: Path, secrets: Iterable[bytes]) -> list[tuple[str, bytes]]:
    """Return the objects in which a thief finds secrets: as they are, in hex or in base64, also in what is
    compressed."""
    spellings = {spelling: secret for secret in secrets for spelling in _spellings(secret)}
    files = sorted(path for path in repository.rglob("*") if path.is_file())
    assert files
    assert spellings
    return [
        (str(file.relative_to(repository)), secret)
        for file in files
        for text in texts_of(file.read_bytes())
        for spelling, secret in spellings.items()
        if spelling in text
    ]


def texts_of(content: bytes) -> Iterator[bytes]:
    """Yield what can be read in an object: its bytes, the values in tables and records, and what they
    contain in turn."""
    yield content
    if content.startswith(b"PAR1"):
        yield from _values(pq.read_table(io.BytesIO(content)).to_pylist())
    elif content.startswith(b"Obj\x01"):
        yield from _values(list(fastavro.reader(io.BytesIO(content))))
    elif content.startswith(b"\x28\xb5\x2f\xfd"):
        yield from texts_of(zstd.decompress(content))
    elif content.startswith(b"\x1f\x8b"):
        yield from texts_of(gzip.decompress(content))


def opened_keys(repository: Path, identity: Path) -> Keyring:
    """Open all data keys of a repository with an identity."""
    identities, storage = Identities.load(identity), open_storage(str(repository))
    keys = []
    for file in repository.glob("*/backups/*/data-keys/*.json"):
        source, _, backup_id, _, _ = file.relative_to(repository).parts
        keys.append(open_key(identities, data_keys.read(storage, source, backup_id, file.stem)))
    return Keyring(keys)


def write_identity(folder: Path) -> KeyPair:
    """Write the file of a new identity, which only this account may read."""
    text, recipient = new_identity()
    file = folder / "identity"
    file.touch(mode=0o600)
    file.write_text(text)
    return KeyPair(file, recipient)


def _values(value: object) -> Iterator[bytes]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _values(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _values(item)
    elif isinstance(value, bytes):
        yield from texts_of(value)
    elif isinstance(value, str):
        yield value.encode()


def _spellings(secret: bytes) -> Iterator[bytes]:
    yield secret
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    for offset in range(3):  # base64 depends on what stands before it
        text = base64.b64encode(bytes(offset) + secret)
        spelling = text[-(-offset * 8 // 6) : (offset + len(secret)) * 8 // 6]
        yield from {spelling, spelling.translate(bytes.maketrans(b"+/", b"-_"))}
