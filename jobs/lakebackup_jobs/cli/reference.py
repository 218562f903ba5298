"""Writes the command line's reference: a page for each command, an overview, and a list of all flags.

`python -m lakebackup_jobs.cli.reference docs/reference/cli` writes the pages.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.cli import get_docs_for_click

from lakebackup.reference import write_pages
from lakebackup_jobs.cli.app import Group, app

_COMMAND = "python -m lakebackup_jobs.cli.reference docs/reference/cli"
_OVERVIEW = """\
# Commands

Each command has a page with its flags and examples. `lakebackup COMMAND --help` prints the same.

- [All flags](flags.md) lists every flag with the commands that take it.
- [Output](../../output.md) says how tables fit the terminal, and what JSON and CSV promise.
- [Exit codes](../../exit-codes.md) lists what a script can rely on.

An ID of a backup is its whole id, the beginning of only one backup's id, or `latest`: the newest backup that
can be restored.
"""
_FLAGS = """\
# All flags

A flag means the same in every command. The first sentence of its help says what it means. The rest of its
help is about the command.

| flag | meaning | commands |
| --- | --- | --- |
"""


class Option(NamedTuple):
    """A flag with the name of its value, and its meaning, which is the first sentence of its help."""

    flag: str
    meaning: str


def options() -> Iterator[tuple[Option, str]]:
    """Yield each option of each verb, with the verb's name."""
    yield from _options(typer.main.get_command(app), "")


def _options(command: Any, path: str) -> Iterator[tuple[Option, str]]:
    for name, child in getattr(command, "commands", {}).items():
        yield from _options(child, f"{path} {name}".strip())
    if not hasattr(command, "commands"):
        for option in command.params:
            if option.param_type_name == "option":
                flag = " ".join(filter(None, ["/".join(option.opts + option.secondary_opts), option.metavar]))
                yield Option(flag, _first_sentence(option.help or "")), path


def _first_sentence(text: str) -> str:
    return f"{text.partition('. ')[0].removesuffix('.')}."


def table() -> str:
    """The table of flags in Markdown: a row has the spelling, the meaning and the verbs of a flag."""
    verbs: dict[Option, list[str]] = defaultdict(list)
    for option, verb in options():
        verbs[option].append(verb)
    all_verbs = list(dict.fromkeys(verb for names in verbs.values() for verb in names))
    rows = sorted(verbs.items(), key=lambda row: row[0].flag.lstrip("-").lower())
    cells = ((f"`{option.flag}`", option.meaning, _short(names, all_verbs)) for option, names in rows)
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in cells)


def _short(verbs: list[str], all_verbs: list[str]) -> str:
    """Return the names of verbs as a list with commas, in which the name of a group stands for all its
    verbs."""
    if len(verbs) == len(all_verbs):
        return "all"
    groups: dict[str, set[str]] = defaultdict(set)
    for verb in all_verbs:
        groups[verb.split()[0]].add(verb)
    complete = {group for group, members in groups.items() if members <= set(verbs)}
    return ", ".join(
        dict.fromkeys(verb.split()[0] if verb.split()[0] in complete else verb for verb in verbs)
    )


def pages() -> dict[str, str]:
    """The pages of the reference: file name -> text."""
    root: Any = typer.main.get_command(app)
    overview = [_OVERVIEW]
    texts: dict[str, str] = {}
    for panel, names in root.panels.items():
        overview.append(f"## {panel}\n\n| command | what it does |\n| --- | --- |")
        for path, command in _commands({name: root.commands[name] for name in names}):
            overview.append(f"| [`{path}`]({_file_name(path)}) | {_summary(command)} |")
        overview.append("")
    for path, command in _commands(root.commands):
        texts[_file_name(path)] = _page(root, path, command)
        if command.hidden:
            overview.append(f"`--help` does not list [`{path}`]({_file_name(path)}). {_summary(command)}\n")
    return {"index.md": "\n".join(overview), "flags.md": f"{_FLAGS}{table()}", **texts}


def _commands(group: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each command of a group and of the groups in it, with the words that call the command."""
    for name, command in group.items():
        if isinstance(command, Group):
            yield from _commands(command.commands, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _file_name(path: str) -> str:
    return f"{path.replace(' ', '-')}.md"


def _summary(command: Any) -> str:
    """The first paragraph of a command's help, as a table cell."""
    return " ".join((command.help or "").partition("\n\n")[0].split()).replace("|", "\\|")


def _page(root: Any, path: str, command: Any) -> str:
    context = typer.Context(root, **root.context_settings)
    text = get_docs_for_click(obj=command, ctx=context, name=f"lakebackup {path}", title=path)
    if command.epilog:
        text = text.replace(command.epilog, _examples(command.epilog))
    return f"{text.strip()}\n"


def _examples(epilog: str) -> str:
    """The examples at the end of a command's help, as a code block."""
    title, _, lines = epilog.partition("\n\n")
    code = "\n".join(line.removeprefix("  ") for line in lines.split("\n\n"))
    return f"**{title.removesuffix(':')}**:\n\n```console\n{code}\n```"


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(f"usage: {_COMMAND}")
    write_pages(Path(sys.argv[1]), pages(), _COMMAND)
