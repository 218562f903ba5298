"""What `backup topics` asks its job for. The job is a stand-in: it keeps the request, and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakebackup.errors import NotFound
from lakebackup_jobs.cli import main
from lakebackup_jobs.topics import backup

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "topics", "patterns"),
    [
        (["orders", "pay"], ("orders", "pay"), ()),
        (["--pattern", "o.*", "--pattern", "pay"], (), ("o.*", "pay")),
        (["orders", "--pattern", "pay"], ("orders",), ("pay",)),
    ],
)
def test_topics_are_named_or_match(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    topics: tuple[str, ...],
    patterns: tuple[str, ...],
) -> None:
    asked: list[Any] = []

    def stand_in(request: Any, **_: Any) -> dict[str, Any]:
        asked.append(request)
        raise NotFound("There is no broker here.")

    monkeypatch.setattr(backup, "run", stand_in)
    where = ["--repo", str(tmp_path), "--bootstrap-server", "none:1", "--bandwidth", "5MB/s", "--dry-run"]
    assert main(["backup", "topics", *words, *where]) == 3
    assert [(one.topics, one.patterns, one.bandwidth) for one in asked] == [(topics, patterns, 5_000_000)]
