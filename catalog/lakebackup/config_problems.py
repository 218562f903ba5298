"""Errors about settings. Their messages name the flag, the variable or the file of each wrong value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from os import environ
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from lakebackup.errors import UsageProblem
from lakebackup.rules.suggestions import similar_names, suggestion
from lakebackup.rules.validation import plain_reason

PREFIX = "LAKEBACKUP_"
#: Variables that are no settings: of lakebackup itself, of programs that it starts, and of its tests.
_OTHER_VARIABLES = re.compile(
    r"CONFIG|CACHE|MAVEN_URL|WORKERS|EVENT_.*|TEST.*|(KAFKA|SPARK)__.*", re.IGNORECASE
)
#: Kubernetes sets these in each pod for a service called lakebackup.
_KUBERNETES_VARIABLES = re.compile(r"SERVICE_HOST|SERVICE_PORT.*|PORT|PORT_\d+_.*", re.IGNORECASE)
#: Names of settings in version 0.1 -> their new names. Version 0.2 reads both; the new name wins.
OLD_NAMES = {"destination": "repo"}
_OLD_APPROVED = {"destinations": "repos"}
#: Other names that people use for a setting -> its name. An entry of a table has a dot before it.
_SYNONYMS = {
    **OLD_NAMES,
    "repository": "repo",
    "bootstrap_server": "kafka.bootstrap_servers",
    "bootstrap_servers": "kafka.bootstrap_servers",
}


def check_variables(fields: Mapping[str, FieldInfo]) -> None:
    """Raise UsageProblem for a variable LAKEBACKUP_… that names no setting but is spelled like one.

    Other unknown variables are ignored: programs and Kubernetes set variables with this prefix too.
    """
    names = _dotted_names(fields)
    known_variables = {name.replace(".", "__") for name in (*names, *OLD_NAMES)}
    for variable in sorted(environ):
        name = variable.upper().removeprefix(PREFIX)
        if (
            name == variable.upper()
            or _OTHER_VARIABLES.fullmatch(name)
            or _KUBERNETES_VARIABLES.fullmatch(name)
        ):
            continue
        # For an entry of a table, the pydantic model reports what is wrong.
        if name.lower() in known_variables or name.partition("__")[1]:
            continue
        similar = _similar_settings(name.lower().replace("__", "."), names)
        if similar:
            variables = [f"{PREFIX}{setting.replace('.', '__').upper()}" for setting in similar]
            raise UsageProblem(f"The variable {variable} names no setting.", hint=suggestion(variables))


def rename_old(table: dict[str, Any]) -> None:
    """Rename the settings of a file that have an old name, in place."""
    for names, old_names in ((table, OLD_NAMES), (table.get("approved"), _OLD_APPROVED)):
        for old, new in old_names.items():
            if isinstance(names, dict) and old in names:
                value = names.pop(old)
                names.setdefault(new, value)


def unknown_setting(name: str, path: Path, fields: Mapping[str, FieldInfo]) -> UsageProblem:
    """The error for a key of a file that names no setting."""
    hint = suggestion(_similar_settings(name, fields)) or f"There are: {', '.join(fields)}."
    return UsageProblem(f"{path}: there is no setting {name!r}.", hint=hint)


def _similar_settings(name: str, settings: Iterable[str]) -> list[str]:
    """The settings that a wrong name may mean, the likeliest first."""
    if name in _SYNONYMS:
        return [_SYNONYMS[name]]
    return list(
        dict.fromkeys(_SYNONYMS.get(word, word) for word in similar_names(name, [*settings, *_SYNONYMS]))
    )


def unreadable_variable(error: ValueError) -> UsageProblem:
    """The error for a variable whose value is not JSON but must be."""
    field = re.search(r'field "(\w+)"', str(error))
    variable = f"{PREFIX}{field[1].upper()}" if field else f"{PREFIX}…"
    return UsageProblem(
        f"The variable {variable} is not JSON, which a list or a table needs.",
        hint=f"""Write a list as '["a", "b"]', and an entry of a table as {variable}__NAME=value.""",
    )


def explained(
    error: ValidationError,
    flags: Mapping[str, Any],
    table: Mapping[str, Any],
    path: Path,
    fields: Mapping[str, FieldInfo],
) -> UsageProblem:
    """The error for invalid values. It names the flag, the variable or the file of each.

    `flags` are the settings by flags, `table` those in the file at `path`.
    """
    problems, hints = [], []
    for detail in error.errors(include_input=False, include_url=False):
        keys = [str(part) for part in detail["loc"]] or ["settings"]
        name, variable = ".".join(keys), f"{PREFIX}{'__'.join(keys).upper()}"
        from_variable = any(key.upper().startswith(variable) for key in environ)
        if keys[0] in flags:
            origin, hint = f"--{name.replace('_', '-')}", ""
        elif from_variable:
            origin, hint = f"The variable {variable}", "Correct the variable, or unset it."
        else:
            origin, hint = (f"{name} in {path}", f"Correct {path}.") if keys[0] in table else (name, "")
        if detail["type"] == "extra_forbidden":
            known_entries = [entry for entry in _dotted_names(fields) if entry.startswith(f"{keys[0]}.")]
            similar = similar_names(name, known_entries)
            if from_variable:
                similar = [f"{PREFIX}{entry.replace('.', '__').upper()}" for entry in similar]
            hint = suggestion(similar) or f"There are: {', '.join(known_entries)}."
        problems.append(f"{origin}{_reason(detail['type'], detail['msg'])}")
        hints.append(hint)
    return UsageProblem("\n".join(problems), hint="\n".join(dict.fromkeys(filter(None, hints))))


def _reason(kind: str, message: str) -> str:
    """The part of the message after the name of the setting."""
    if kind == "extra_forbidden":
        return " names no setting."
    reason = plain_reason(message)
    if kind.startswith("byte_size"):
        reason = reason.rstrip(".") if kind != "byte_size" else "this is not a size"
        reason += "; write 500MB, 128MiB, 10GiB."
    return f" {reason}" if reason.startswith("must ") else f": {reason}"


def _dotted_names(fields: Mapping[str, FieldInfo]) -> list[str]:
    """The names of all settings. Entries of a table follow its name and a dot."""
    names = list(fields)
    for name, field in fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            names += [f"{name}.{entry}" for entry in model.model_fields]
    return names
