"""The memory that a process may use. The system's files are made up: no test may set the machine's limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebackup_jobs.runtime import memory_limit as limits


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(limits, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(limits, "_OWN_GROUP", tmp_path / "own")
    return tmp_path


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_without_limits_it_is_the_machines(system: Path) -> None:
    machine = limits.memory_limit()
    assert machine > 1 << 28
    put(system / "groups/memory.max", "max\n")
    assert limits.memory_limit() == machine


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_a_containers_limit(file: str, system: Path) -> None:
    put(system / "groups" / file, f"{384 << 20}\n")
    assert limits.memory_limit() == 384 << 20


def test_a_limit_of_a_group_above(system: Path) -> None:
    put(system / "own", "0::/system.slice/backup.service\n")
    put(system / "groups/system.slice/backup.service/memory.max", "max\n")
    put(system / "groups/system.slice/memory.max", f"{512 << 20}\n")
    assert limits.memory_limit() == 512 << 20


@pytest.mark.parametrize(
    ("limit_mib", "heap"), [(384, 256), (1024, 512), (2048, 1024), (8192, 2048), (65536, 4096)]
)
def test_the_heap_follows_the_limit(limit_mib: int, heap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory_limit", lambda: limit_mib << 20)
    assert limits.heap_mib() == heap
