"""Who hears of the downloads of JVM libraries. They run in whichever thread first needs a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Download:
    """The state of a download of several files. `name`: of what is downloaded now. `total_bytes`: None
    where it is not known."""

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
    """Tell the listeners the state of a download; None: it has ended."""
    for listener in tuple(_listeners):
        listener(download)
