"""Commands run in this process, and what they print."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.progress import QuietReporter

if TYPE_CHECKING:
    import pytest


def quiet(err: io.StringIO | None = None) -> QuietReporter:
    """A reporter whose output nobody reads, but for notes and warnings in `err`."""
    return QuietReporter(io.StringIO(), err or io.StringIO())


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    """What a command says with --json, which ends with this code: its rows, or its error."""
    found = main([*arguments, "--json"])
    out = capsys.readouterr()
    assert found == code, out.err
    return [json.loads(line) for line in (out.err if code else out.out).splitlines()]
