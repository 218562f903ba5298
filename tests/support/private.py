"""Files as secrets have to be."""

from __future__ import annotations

from pathlib import Path


def private_file(path: Path, content: bytes) -> Path:
    """A file that this account alone may read."""
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path
