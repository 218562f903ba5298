"""File systems on which writes really fail: small, full or read-only; and damage to files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of `size` (in mount's notation: 1m) below `folder` inside the block. Skips unless
    root."""
    mount_point = folder / "small"
    mount_point.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount_point))
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], check=True)


def fill(file: Path, leave: int = 0) -> None:
    """Fill the file's disk with the file, except for `leave` bytes."""
    statistics = os.statvfs(file.parent)
    with file.open("wb", buffering=0) as stream:
        for _ in range((statistics.f_bavail * statistics.f_frsize - leave) // 4096):
            stream.write(bytes(4096))


def flip(file: Path, offset: int | None = None) -> None:
    """Flip a bit of the byte at `offset`, or of the one in the middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if offset is None else offset] ^= 1
    file.write_bytes(data)


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """The folder, which is read-only inside the block. Skips for other users than root."""
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,ro,bind", str(folder))
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def pinned(file: Path) -> Iterator[None]:
    """The file cannot be deleted inside the block. Skips for other users than root."""
    _mount("--bind", str(file), str(file))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(file)], check=True)


def _mount(*options: str) -> None:
    result = subprocess.run(["mount", *options], capture_output=True)
    if result.returncode:
        pytest.skip("only root can mount a file system")
