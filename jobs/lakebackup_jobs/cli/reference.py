"""The flags of all verbs in one table, and docs/cli.md, which this module writes."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from typer.cli import get_docs_for_click

from lakebackup_jobs.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_INTRODUCTION = """## Flags

A flag means the same in every verb. The first sentence of its help says what; what follows there is about the
verb. An ID of a backup is its whole id, a beginning that no other has, or `latest`: the newest that can
be restored. [output.md](output.md) says how tables fit the terminal, and what JSON and CSV promise.

| flag | meaning | verbs |
| --- | --- | --- |
"""


class Option(NamedTuple):
    """A flag with the name of its value, and what it means: the first sentence of its help."""

    flag: str
    meaning: str


def options() -> Iterator[tuple[Option, str]]:
    """Each option of each verb, and the verb's name."""
    yield from _options(typer.main.get_command(app), "")


def _options(command: Any, path: str) -> Iterator[tuple[Option, str]]:
    for name, one in getattr(command, "commands", {}).items():
        yield from _options(one, f"{path} {name}".strip())
    if not hasattr(command, "commands"):
        for option in command.params:
            if option.param_type_name == "option":
                flag = " ".join(filter(None, ["/".join(option.opts + option.secondary_opts), option.metavar]))
                yield Option(flag, _first_sentence(option.help or "")), path


def _first_sentence(text: str) -> str:
    return f"{text.partition('. ')[0].removesuffix('.')}."


def table() -> str:
    """A row for each flag: its spelling, its meaning, its verbs."""
    verbs: dict[Option, list[str]] = defaultdict(list)
    for option, verb in options():
        verbs[option].append(verb)
    every = list(dict.fromkeys(verb for those in verbs.values() for verb in those))
    rows = sorted(verbs.items(), key=lambda row: row[0].flag.lstrip("-").lower())
    cells = ((f"`{one.flag}`", one.meaning, _short(those, every)) for one, those in rows)
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in cells)


def _short(verbs: list[str], every: list[str]) -> str:
    """Verbs by name; all verbs of a group by the group's."""
    if len(verbs) == len(every):
        return "all"
    groups: Mapping[str, list[str]] = {
        verb.split()[0]: [other for other in every if other.split()[0] == verb.split()[0]] for verb in every
    }
    named = [group if set(groups[group := verb.split()[0]]) <= set(verbs) else verb for verb in verbs]
    return ", ".join(dict.fromkeys(named))


def document() -> str:
    """The text of docs/cli.md."""
    command = typer.main.get_command(app)
    context = typer.Context(command, **command.context_settings)
    text = get_docs_for_click(obj=command, ctx=context, name="lakebackup")
    title, _, rest = text.partition("\n\n")
    return f"{title}\n\n{_INTRODUCTION}{table()}\n## Verbs\n\n{rest.strip()}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")
