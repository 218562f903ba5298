"""The request that `backup topics` passes to its job, which here keeps the request and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakebackup.errors import NotFound
from lakebackup_jobs.cli import main

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
    requests: list[Any] = []

    def stand_in(request: Any, **_: Any) -> dict[str, Any]:
        requests.append(request)
        raise NotFound("There is no broker here.")

    monkeypatch.setattr("lakebackup_jobs.cli.backup.topics.run", stand_in)
    options = ["--repo", str(tmp_path), "--bootstrap-server", "none:1", "--bandwidth", "5MB/s", "--dry-run"]
    assert main(["backup", "topics", *words, *options]) == 3
    assert [(request.topics, request.patterns, request.bandwidth) for request in requests] == [
        (topics, patterns, 5_000_000)
    ]
