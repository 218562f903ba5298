"""Commands run in this process, and what they print."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.progress import Reporter

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession


def quiet(err: io.StringIO | None = None) -> Reporter:
    """A reporter whose output nobody reads, but for notes and warnings in `err`."""
    return Reporter(io.StringIO(), err or io.StringIO())


@dataclass
class Stage:
    """A stage of a run as it was reported, and how much of it was done in the end."""

    what: str
    unit: str
    total: int | None
    total_bytes: int | None
    done: int = 0
    done_bytes: int = 0


class Counting(Reporter):
    """A reporter that keeps the stages and their amounts."""

    def __init__(self) -> None:
        super().__init__(io.StringIO(), io.StringIO())
        self.stages: list[Stage] = []

    def start(
        self, total: int | None, total_bytes: int | None, what: str = "", unit: str = "records"
    ) -> None:
        self.stages.append(Stage(what, unit, total, total_bytes))

    def update(self, done: int, done_bytes: int) -> None:
        stage = self.stages[-1]
        stage.done, stage.done_bytes = max(stage.done, done), max(stage.done_bytes, done_bytes)


@dataclass(frozen=True)
class Commands:
    """Gives them, on a session if there is one, and takes what they print."""

    capture: pytest.CaptureFixture[str]
    spark: SparkSession | None = None

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        """The exit code, what it prints, and what it says on standard error."""
        self.capture.readouterr()
        code = main([str(word) for word in words], spark=self.spark)
        out, err = self.capture.readouterr()
        assert "Traceback" not in err
        return code, out, err

    def fails(self, code: int, *words: str | Path) -> str:
        """What a command says on standard error that ends with `code`."""
        ended, _, err = self.run(*words)
        assert ended == code, err
        return err

    def out(self, *words: str | Path) -> str:
        """What a command prints that succeeds."""
        code, out, err = self.run(*words)
        assert code == 0, err
        return out

    def rows(self, *words: str | Path) -> list[dict[str, Any]]:
        """What it prints with --json: an object a line."""
        return [json.loads(line) for line in self.out(*words, "--json").splitlines()]

    def told(self, *words: str | Path) -> dict[str, Any]:
        """The result of a job: the last of the lines."""
        return self.rows(*words)[-1]


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    """What a command says with --json, which ends with this code: its rows, or its error."""
    found, out, err = Commands(capsys).run(*arguments, "--json")
    assert found == code, err
    return [json.loads(line) for line in (err if code else out).splitlines()]
