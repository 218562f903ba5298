"""The memory that a process may use. The system's files are invented: no test may limit the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebackup_jobs.runtime import memory_limit as limits


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(limits, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(limits, "_OWN_GROUP", tmp_path / "own")
    return tmp_path


def write_file(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_without_limits_the_memory_of_the_machine_counts(system: Path) -> None:
    machine = limits.memory_limit()
    assert machine > 1 << 28
    write_file(system / "groups/memory.max", "max\n")
    assert limits.memory_limit() == machine


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_the_limit_of_a_container_counts(file: str, system: Path) -> None:
    write_file(system / "groups" / file, f"{384 << 20}\n")
    assert limits.memory_limit() == 384 << 20


def test_the_limit_of_a_parent_group_counts(system: Path) -> None:
    write_file(system / "own", "0::/system.slice/backup.service\n")
    write_file(system / "groups/system.slice/backup.service/memory.max", "max\n")
    write_file(system / "groups/system.slice/memory.max", f"{512 << 20}\n")
    assert limits.memory_limit() == 512 << 20


@pytest.mark.parametrize(
    ("limit_mib", "heap"), [(384, 256), (1024, 512), (2048, 1024), (8192, 2048), (65536, 4096)]
)
def test_the_heap_follows_the_limit(limit_mib: int, heap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory_limit", lambda: limit_mib << 20)
    assert limits.heap_mib() == heap
