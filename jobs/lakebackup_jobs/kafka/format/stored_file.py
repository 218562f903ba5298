"""A data file as tasks read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file as a restore task needs it: a row of the query selected_files."""

    scope: str
    epoch: str
    region: str
    start_position: int
    end_position: int
    destination: str
    path: str
    format: str
    codec: str
    bytes: int
    sha256: str
    entries: int
