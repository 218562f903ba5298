"""Files with the permissions that secrets need."""

from __future__ import annotations

from pathlib import Path


def private_file(path: Path, content: bytes) -> Path:
    """Write a file that only this account may read; returns its path."""
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path
