"""Which path records take through librdkafka."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebackup_jobs.kafka.client import library

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


@contextmanager
def through(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The compiled path or the plain one, its fallback, by the setting a user has."""
    monkeypatch.setenv(library.PATH_SETTING, path)
    library.why_not.cache_clear()
    yield
    monkeypatch.delenv(library.PATH_SETTING)
    library.why_not.cache_clear()
