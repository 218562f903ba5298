"""Runs commands in this process and captures what they print."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.progress import Reporter

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession


def quiet(err: io.StringIO | None = None) -> Reporter:
    """A reporter whose output is dropped; notes and warnings go to `err` if it is given."""
    return Reporter(io.StringIO(), err or io.StringIO())


@dataclass
class Stage:
    """A stage that a run reported, and how much of it was done at the end."""

    title: str
    unit: str
    total: int | None
    total_bytes: int | None
    finished: int = 0
    done_bytes: int = 0


class Counting(Reporter):
    """A reporter that collects the stages and their amounts."""

    def __init__(self) -> None:
        super().__init__(io.StringIO(), io.StringIO())
        self.stages: list[Stage] = []

    def start(
        self, total: int | None, total_bytes: int | None, title: str = "", unit: str = "records"
    ) -> None:
        self.stages.append(Stage(title, unit, total, total_bytes))

    def update(self, finished: int, done_bytes: int) -> None:
        stage = self.stages[-1]
        stage.finished, stage.done_bytes = max(stage.finished, finished), max(stage.done_bytes, done_bytes)


@dataclass(frozen=True)
class Commands:
    """Runs commands, on a session if there is one, and captures what they print."""

    capture: pytest.CaptureFixture[str]
    spark: SparkSession | None = None

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        """Run a command; returns its exit code, its output and its standard error."""
        self.capture.readouterr()
        code = main([str(word) for word in words], spark=self.spark)
        output, err = self.capture.readouterr()
        assert "Traceback" not in err, err
        return code, output, err

    def fails(self, code: int, *words: str | Path) -> str:
        """Run a command that must end with `code`; returns its standard error."""
        exit_code, _, err = self.run(*words)
        assert exit_code == code, err
        return err

    def output(self, *words: str | Path) -> str:
        """Run a command that must succeed; returns its output."""
        code, output, err = self.run(*words)
        assert code == 0, err
        return output

    def rows(self, *words: str | Path) -> list[dict[str, Any]]:
        """Run a command with --json, which prints an object a line; returns the objects."""
        return [json.loads(line) for line in self.output(*words, "--json").splitlines()]

    def result(self, *words: str | Path) -> dict[str, Any]:
        """Run a job with --json; returns its result, which is the last line."""
        return self.rows(*words)[-1]


@dataclass(frozen=True)
class Terminal:
    """Runs lines as a person types them, without the word `lakebackup`."""

    commands: Commands

    def __call__(self, line: str) -> str:
        """Run a line that must succeed; returns its output."""
        return self.commands.output(*shlex.split(line))

    def rows(self, line: str) -> list[dict[str, Any]]:
        """Run a line with --json that must succeed; returns its rows. A job's result is the last of them."""
        return self.commands.rows(*shlex.split(line))

    def fails(self, code: int, line: str) -> str:
        """Run a line that must end with `code`; returns its standard error."""
        return self.commands.fails(code, *shlex.split(line))


def result_rows(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    """Run a command with --json that must end with `code`; returns its rows, or its error."""
    exit_code, output, err = Commands(capsys).run(*arguments, "--json")
    assert exit_code == code, err
    return [json.loads(line) for line in (err if code else output).splitlines()]
