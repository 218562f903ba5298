"""Encrypted backups whose keys or objects are lost, damaged, exchanged or another's: each fault is named.

Layer: make test. One repository is made for all cases; each case works on a copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.encrypted import Host, KeyPair
from tests.support.kafka_truth import Record

from lakebackup.errors import Damaged
from lakebackup.plan.topics.request import RestoreRequest, plan_restore
from lakebackup.storage import open_storage
from lakebackup.store.manifest import get_sealed, put_sealed
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli import main
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.kafka.format.stored import open_stored
from lakebackup_jobs.lifecycle.keyring import keyring

pytestmark = pytest.mark.kafka

TOPIC = f"damaged-{uuid4().hex[:8]}"
RECORDS = [
    Record(i % 2, b"key-%03d" % (i % 20), os.urandom(1_000), (), 1_600_000_000_000 + i) for i in range(400)
]


class Repository:
    """A copy of the repository, with two encrypted backups, and the identity that reads it."""

    def __init__(self, folder: Path, host: Host, keys: KeyPair) -> None:
        self.folder, self.host, self.keys = folder, host, keys

    @property
    def key_objects(self) -> list[Path]:
        return sorted(self.folder.glob("*/backups/*/data-keys/*.json"))

    @property
    def data_files(self) -> list[Path]:
        return sorted(self.folder.rglob("*.data"))


@pytest.fixture(scope="module")
def made(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, KeyPair]]:
    folder = tmp_path_factory.mktemp("encrypted")
    truth.create_topic(broker.bootstrap, TOPIC, 2, retention_ms="-1")
    words = ["backup", "topics", TOPIC, "--bootstrap-server", broker.bootstrap, "--groups", "none"]
    with pytest.MonkeyPatch.context() as monkeypatch:
        host = Host(monkeypatch, folder / "keys")
        keys = host.key_pair("identity")
        host.has(keys.recipient)
        for _ in range(2):
            truth.produce(broker.bootstrap, TOPIC, RECORDS)
            assert main([*words, "--repo", str(folder / "backups")]) == 0
    yield folder / "backups", keys
    truth.delete_topic(broker.bootstrap, TOPIC)


@pytest.fixture
def repository(made: tuple[Path, KeyPair], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Repository:
    folder, keys = made
    shutil.copytree(folder, tmp_path / "backups")
    host = Host(monkeypatch, tmp_path / "keys")
    host.has(identity_file=keys.file)
    return Repository(tmp_path / "backups", host, keys)


def no_identity(repository: Repository) -> None:
    repository.host.has()


def foreign_identity(repository: Repository) -> None:
    repository.host.has(identity_file=repository.host.key_pair("foreign").file)


def lost_key(repository: Repository) -> None:
    repository.key_objects[0].unlink()


def exchanged_content(repository: Repository) -> None:
    """Another's wrapped key in an object with a right SHA-256."""
    storage = open_storage(str(repository.folder))
    first, second = (str(file.relative_to(repository.folder)) for file in repository.key_objects)
    content = get_sealed(storage, first)
    put_sealed(
        storage, first, {"format": 1, **content, "wrapped_keys": get_sealed(storage, second)["wrapped_keys"]}
    )


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)


MISTAKES: list[tuple[Callable[[Repository], None], int, str]] = [
    (no_identity, 2, "is encrypted, and no identity is set. Its recipients: age1"),
    (foreign_identity, 7, "opens the data key"),
    (lost_key, 7, "is lost"),
    (exchanged_content, 7, "was exchanged"),
]


@pytest.mark.parametrize(("mistake", "code", "text"), MISTAKES, ids=[case[0].__name__ for case in MISTAKES])
def test_each_mistake_with_keys_is_named(
    mistake: Callable[[Repository], None],
    code: int,
    text: str,
    repository: Repository,
    commands: Commands,
    tmp_path: Path,
) -> None:
    mistake(repository)
    secret = repository.keys.file.read_text().split()[-1]
    for words in (
        ["restore", "topics", TOPIC, "--to", f"dir:{tmp_path / 'out'}"],
        ["sql", f"SELECT count(value) FROM records('{TOPIC}')"],
    ):
        error = commands.fails(code, *words)
        assert text in error
        assert secret not in error
        assert not list((tmp_path / "out").glob("**/*.data"))


def damages(repository: Repository) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """What happens to a data file: at its beginning, in each segment, at its end; cut at segments' ends."""
    size = repository.data_files[0].stat().st_size
    for position in (0, 9, 16, 17, 50, 60, 1 << 16, (1 << 16) + 20, size - 17, size - 1):
        yield f"bit {position}", lambda file, position=position: flip(file, position)  # type: ignore[misc]
    for length in (0, 8, 16, 56, 16 + (1 << 16), size - 1):
        yield f"cut {length}", lambda file, length=length: os.truncate(file, length)  # type: ignore[misc]
    others = repository.data_files[1:]
    for number, other in enumerate(others):
        content = other.read_bytes()
        yield f"object {number}", lambda file, content=content: file.write_bytes(content)  # type: ignore[misc]


def test_damaged_and_exchanged_objects_are_never_read(
    repository: Repository, commands: Commands, tmp_path: Path
) -> None:
    """Also when the catalog's SHA-256 and size are those of the damaged object."""
    reader = CatalogReader.require(str(repository.folder))
    plan = plan_restore(RestoreRequest(str(repository.folder), "dir:x", topics=(TOPIC,)), reader)
    roots = reader.destinations()
    roots = roots.with_keys(keyring(reader.with_rows("selected", plan.file), roots))
    rows = [SimpleNamespace(**row) for row in plan.file.table().to_pylist()]
    target = repository.data_files[0]
    row = next(row for row in rows if row.path == str(target.relative_to(repository.folder)))
    original = target.read_bytes()
    assert len(original) > 2 << 16
    count = 0
    for name, damage in damages(repository):
        damage(target)
        with pytest.raises(Damaged):
            for _ in FileReader(
                open_stored(roots, row.path, row, target.read_bytes()), row.path, row.entries
            ):
                pass
        if name in ("bit 60", "cut 16", "object 0"):
            assert "is not what was written" in commands.fails(
                7, "restore", "topics", TOPIC, "--to", f"dir:{tmp_path / 'out'}"
            )
        target.write_bytes(original)
        count += 1
    assert count == 19
    assert list(FileReader(open_stored(roots, row.path, row, original), row.path, row.entries))
