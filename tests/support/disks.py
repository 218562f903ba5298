"""File systems on which writing really fails: of a chosen size, full, read-only; and files that rot."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """One below `folder`, as long as the block runs; `size` as mount takes it: 1m. Skips for other users."""
    place = folder / "small"
    place.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(file: Path, leave: int = 0) -> None:
    """Use up the space of the file's disk but for some bytes."""
    found = os.statvfs(file.parent)
    with file.open("wb", buffering=0) as stream:
        for _ in range((found.f_bavail * found.f_frsize - leave) // 4096):
            stream.write(bytes(4096))


def flip(file: Path, place: int | None = None) -> None:
    """Have another bit in the byte at `place`, or in the middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    file.write_bytes(data)


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """The folder, which nobody can write to as long as the block runs. Skips for other users than root."""
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,ro,bind", str(folder))
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def pinned(file: Path) -> Iterator[None]:
    """Nobody can delete the file as long as the block runs. Skips for other users than root."""
    _mount("--bind", str(file), str(file))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(file)], check=True)


def _mount(*options: str) -> None:
    done = subprocess.run(["mount", *options], capture_output=True)
    if done.returncode:
        pytest.skip("only root can mount a file system")
