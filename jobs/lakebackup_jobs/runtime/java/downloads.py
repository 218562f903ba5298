"""Announces downloads of JVM libraries to listeners. They run in the thread that first needs a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Download:
    """The state of a download of several files.

    `name`: what is downloaded now. `files` and `bytes`: downloaded so far. `total_bytes`: None if unknown.
    """

    name: str
    files: int
    total_files: int
    bytes: int
    total_bytes: int | None


Listener = Callable[[Download | None], None]
_listeners: list[Listener] = []


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """While the block runs, call `listener` with the state of each download, and with None at its end."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def announce(download: Download | None) -> None:
    """Call the listeners with the state of a download; None: the download has ended."""
    for listener in tuple(_listeners):
        listener(download)
