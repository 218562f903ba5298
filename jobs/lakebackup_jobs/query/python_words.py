"""Translates errors for Python programs: hints name flags of the command line, and a program has arguments.

A command that a text quotes (`lakebackup verify --all`) stays as it is, since a person runs it in a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from lakebackup.errors import LakebackupError, UsageProblem

#: Flags of the command line -> the arguments of `connect`, `sql` and `restore` that mean the same.
ARGUMENTS = {
    "--repo": "repo",
    "--catalog": "catalog",
    "--config": "config",
    "--as-of": "as_of",
    "--engine": "engine",
    "--timeout": "timeout",
    "--to": "to",
    "--pattern": "patterns",
    "--source": "source",
    "--to-time": "to_time",
    "--from-time": "from_time",
    "--backup": "backup",
    "--select": "select",
    "--select-records": "records",
    "--map": "maps",
    "--partitions": "partitions",
    "--group-pattern": "groups",
    "--topic-settings": "settings",
    "--kafka-config": "kafka",
    "--bootstrap-server": "to",
}
#: Flags without a value.
SWITCHES = {
    "--partial": "partial",
    "--append": "append",
    "--continue": "continued",
    "--repartition": "repartition",
    "--allow-gaps": "allow_gaps",
    "--approximate": "approximate",
    "--allow-empty": "allow_empty",
    "--strict-schemas": "strict_schemas",
    "--zero-timestamps-as-one": "zero_as_one",
}
_COMMAND = re.compile(r"`[^`]*\blakebackup [a-z][^`]*`|\blakebackup [a-z][a-z -]*--[^\n]*")
_VALUE = r"kafka://…|[\w{}.-]+=[\w.-]+|[A-Z]{2,}\b|\d[\w:-]*|(?:spark|duckdb|saved|suspended)\b"
_FLAG = re.compile(rf"`(--[a-z][a-z-]*)(?: ([^`]+))?`|(?<![\w-])(--[a-z][a-z-]*)(?: ({_VALUE}))?")


@contextmanager
def in_python_words() -> Iterator[None]:
    """Replace flags by arguments in the errors that the block raises."""
    try:
        yield
    except LakebackupError as error:
        error.message, error.hint = translated(error.message), translated(error.hint)
        error.args = (error.message,)
        raise


def translated(text: str) -> str:
    """Return the text with arguments in place of flags, except in the commands that it quotes."""
    if "--" not in text:
        return text
    translation, end = "", 0
    for command in _COMMAND.finditer(text):
        translation += _FLAG.sub(_argument, text[end : command.start()]) + command[0]
        end = command.end()
    return translation + _FLAG.sub(_argument, text[end:])


def require_known(arguments: Collection[str], valid_names: Collection[str]) -> None:
    """Raise UsageProblem for an argument that is not in `valid_names`; it suggests the most similar one."""
    for name in arguments:
        if name in valid_names:
            continue
        flags = {flag.strip("-").replace("-", "_"): name for flag, name in (ARGUMENTS | SWITCHES).items()}
        names = [*valid_names, *(flag for flag, argument in flags.items() if argument in valid_names)]
        near = get_close_matches(name, names, 1)
        meant = f"; did you mean `{flags.get(near[0], near[0])}`?" if near else "."
        raise UsageProblem(f"Unknown argument `{name}`{meant}", hint=f"Arguments: {', '.join(valid_names)}.")


def _argument(match: re.Match[str]) -> str:
    flag, value = match[1] or match[3], match[2] or match[4] or ""
    if flag in SWITCHES:
        return f"`{SWITCHES[flag]}=True`" + (f" {value}" if value else "")
    if flag not in ARGUMENTS or "--" in value:
        return match[0]
    name = ARGUMENTS[flag]
    if not value:
        return f"`{name}`"
    if name == "maps":
        old, new = value.split("=", 1)
        return f'`maps={{"{old}": "{new}"}}`'
    return f"`{name}={value}`" if value == "spark" else f'`{name}="{value}"`'
