"""Turns typer's errors about a command line into this program's messages: the flag, the fault, and a hint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import typer
from typer._click.exceptions import BadParameter, MissingParameter, NoSuchOption

from lakebackup.errors import UsageProblem
from lakebackup.rules.suggestions import did_you_mean, similar_names, suggestion
from lakebackup.rules.validation import plain_reason

_NOT_A_CHOICE = re.compile(r"'(?P<value>.*)' is not one of (?P<choices>'.*')")
_EXTRA_ARGUMENTS = re.compile(r"Got unexpected extra argument\(s\) \((?P<words>.*)\)", re.DOTALL)
_VALUE_MISSING = re.compile(r"Option '(?P<flag>.*)' requires an argument\.")
_NO_VALUE = re.compile(r"Option '(?P<flag>.*)' does not take a value\.")


def usage_problem(error: typer.TyperException) -> UsageProblem:
    """The error to report in place of typer's error."""
    context: Any = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "lakebackup"
    message, hint = _described(error, command, context)
    return UsageProblem(message, hint=f"{hint} See: {command} --help".lstrip())


def unknown_command(
    word: str, group: str, names: Iterable[str], groups: Mapping[str, Iterable[str]]
) -> UsageProblem:
    """The error for a word that is not a command of a group.

    `names` are the group's commands. `groups` are the groups among them, with their commands.
    """
    commands = [f"{group} {name} {word}" for name, verbs in groups.items() if word in verbs]
    hint = suggestion(commands) or did_you_mean(word, names)
    return UsageProblem(f"There is no command `{group} {word}`.", hint=f"{hint} See: {group} --help".lstrip())


def _described(error: typer.TyperException, command: str, context: Any) -> tuple[str, str]:
    """The message for an error, and a hint."""
    text = error.format_message()
    if isinstance(error, NoSuchOption):
        if "PRIVATE KEY" in error.option_name:  # in PEM form it begins like a flag, and is not shown
            return f"`{command}` takes no private key.", "Name its file, or its public half."
        return f"`{command}` has no flag {error.option_name}.", _similar_flags(error.option_name, context)
    if isinstance(error, MissingParameter) and error.param is not None:
        return f"Missing {_name(error.param)}: {_meaning(error.param)}", ""
    if isinstance(error, BadParameter) and error.param is not None:
        return _bad_value(_name(error.param), error.message)
    if extra := _EXTRA_ARGUMENTS.fullmatch(text):
        return f"`{command}` takes no argument {extra['words']!r}.", ""
    if missing := _VALUE_MISSING.fullmatch(text):
        return f"{missing['flag']} needs a value.", ""
    if switch := _NO_VALUE.fullmatch(text):
        return f"{switch['flag']} takes no value.", f"Write {switch['flag']} alone."
    return text, ""


def _bad_value(name: str, reason: str) -> tuple[str, str]:
    choice = _NOT_A_CHOICE.search(reason)
    if choice is None:
        return f"{name[:1].upper()}{name[1:]} {plain_reason(reason)}", ""
    choices = re.findall(r"'([^']*)'", choice["choices"])
    message = f"{name} {choice['value']!r} is none of {', '.join(choices)}."
    return message, suggestion(similar_names(choice["value"], choices)[:1])


def _similar_flags(flag: str, context: Any) -> str:
    if context is None or not flag.startswith("--"):
        return ""
    flags = [name for param in context.command.params for name in (*param.opts, *param.secondary_opts)]
    long_names = sorted(name.removeprefix("--") for name in flags if name.startswith("--"))
    return suggestion([f"--{name}" for name in similar_names(flag.removeprefix("--"), long_names)])


def _name(param: Any) -> str:
    """The name of a flag as it is typed, or of an argument as help prints it."""
    if param.param_type_name == "option":
        return str(param.opts[0])
    return f"argument {param.metavar or str(param.name).upper()}"


def _meaning(param: Any) -> str:
    """The first sentence of a parameter's help, in lower case."""
    sentence = str(param.help or "").partition(". ")[0].rstrip(".")
    return f"{sentence[:1].lower()}{sentence[1:]}."
