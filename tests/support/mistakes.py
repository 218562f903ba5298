"""Mistakes on the command line and the messages of lakebackup, recorded in a file for people to review.

`python -m tests.support.mistakes` runs the commands of the file again and records their present messages.
Read the changes before you commit them.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import Any
from unittest import mock

import yaml
from tests.support.unpacked import unpack

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.cli import main
from lakebackup_jobs.kafka.admin import cluster
from lakebackup_jobs.runtime.java import jvm

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests/unit/jobs/cli/mistakes.yml"
_REPOSITORY = ROOT / "tests/walkthroughs/data/destination-of-0.1.tar.gz"
_HEADER = """\
# Mistakes on the command line: the command, its exit code (docs/exit-codes.md), and what it says.
#
# Each runs in a folder of its own. `backups` there is a repository with the sources lab (topics), social (an
# engine), social.snapshot and db (a log). `files` are written before the command runs.
#
# To add one, write its command and run `python -m tests.support.mistakes`, which fills in the rest and renews
# what has changed. Read each message aloud: it names the flag or setting, says what is wrong, and what to do.
"""
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Mistake:
    """A command and its message. `files`: files that exist before it runs, name -> text."""

    command: str
    exit: int | None = None
    says: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def load() -> dict[str, list[Mistake]]:
    """The recorded mistakes, by area."""
    recorded: dict[str, list[dict[str, Any]]] = yaml.safe_load(FILE.read_text("utf-8"))
    return {area: [Mistake(**mistake) for mistake in mistakes] for area, mistakes in recorded.items()}


def unpack_repository(folder: Path) -> None:
    """Unpack the repository that the commands use as `backups`."""
    with _REPOSITORY.open("rb") as packed:
        unpack(packed, folder)


def run(mistake: Mistake, folder: Path) -> tuple[int, str]:
    """Run a command in `folder`; returns its exit code and its message, without paths of this machine."""
    for name, text in mistake.files.items():
        (folder / name).write_text(text, "utf-8")
        (folder / name).chmod(0o600)
    words = shlex.split(mistake.command)
    variables: dict[str, str] = {}
    while _VARIABLE.fullmatch(words[0]):
        name, _, variables[name] = words.pop(0).partition("=")
    if words.pop(0) != "lakebackup":
        raise ValueError(f"{mistake.command!r} is no command of lakebackup")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAKEBACKUP_")}
    errors = io.StringIO()
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, environment | variables, clear=True),
        mock.patch.object(jvm, "start", _no_jvm),
        mock.patch.object(cluster, "ALL_DOWN_S", 0.3),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(errors),
    ):
        code = main(words)
    return code, _without_machine(errors.getvalue(), folder)


def record() -> None:
    """Run all commands of the file and record their messages."""
    FILE.write_text("".join([_HEADER, *_yaml_entries(load())]), "utf-8")


def _yaml_entries(mistakes: Mapping[str, list[Mistake]]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as scratch:
        unpack_repository(Path(scratch))
        for area, commands in mistakes.items():
            yield f"\n{area}:\n"
            for mistake in commands:
                for path in Path(scratch).iterdir():
                    if path.is_file():
                        path.unlink()
                code, message = run(mistake, Path(scratch))
                yield f"\n- command: {_quoted(mistake.command)}\n"
                if mistake.files:
                    yield "  files:\n"
                for name, text in mistake.files.items():
                    yield f"    {name}: {_quoted(text)}\n"
                yield f"  exit: {code}\n  says: |\n{indent(message, '    ')}"


def _quoted(text: str) -> str:
    """A text as a YAML value on one line, without quotes if YAML reads it as the same text."""
    plain = text == text.strip() and "\n" not in text and '"' not in text[:1]
    with contextlib.suppress(yaml.YAMLError):
        if plain and yaml.safe_load(f"key: {text}") == {"key": text}:
            return text
    dumped: str = yaml.dump(text, default_style='"', width=1_000, allow_unicode=True)
    return dumped.strip()


def _no_jvm(*_: object, **__: object) -> Any:
    """In place of a JVM: checks Java's environment, and fails if the JVM is used."""
    jvm.environment()

    class Absent:
        def address(self) -> tuple[int, str]:
            raise EnvironmentProblem("A mistake is found before a JVM is needed.")

    return Absent()


def _without_machine(text: str, folder: Path) -> str:
    for path in (folder.resolve(), folder):
        text = text.replace(str(path), "/home/you")
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


if __name__ == "__main__":
    record()
