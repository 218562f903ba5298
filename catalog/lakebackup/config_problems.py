"""What is wrong with settings, in sentences that name the flag, the variable or the file."""

from __future__ import annotations

import re
from os import environ
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from lakebackup.errors import UsageProblem
from lakebackup.rules.suggestions import similar_names, suggestion
from lakebackup.rules.validation import plain_reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pydantic import ValidationError
    from pydantic.fields import FieldInfo

PREFIX = "LAKEBACKUP_"
#: Variables that are no settings: of the program, of what it starts, of its tests.
_NO_SETTINGS = re.compile(r"CONFIG|CACHE|MAVEN_URL|WORKERS|EVENT_.*|TEST.*|(KAFKA|SPARK)__.*", re.IGNORECASE)
#: Kubernetes sets these in each pod for a service called lakebackup.
_OF_KUBERNETES = re.compile(r"SERVICE_HOST|SERVICE_PORT.*|PORT|PORT_\d+_.*", re.IGNORECASE)
#: Settings of version 0.1 -> their names now; 0.2 reads both, and the new one wins.
OLD_NAMES = {"destination": "repo"}
_OLD_APPROVED = {"destinations": "repos"}
#: What people call a setting -> its name, with a dot before an entry of a table.
_WORDS = {
    **OLD_NAMES,
    "repository": "repo",
    "bootstrap_server": "kafka.bootstrap_servers",
    "bootstrap_servers": "kafka.bootstrap_servers",
}


def check_variables(fields: Mapping[str, FieldInfo]) -> None:
    """Raises UsageProblem for a variable LAKEBACKUP_… that names no setting but is spelled like one.

    Others are left alone: programs and Kubernetes set variables with this prefix for their own ends.
    """
    names = _dotted(fields)
    known = {name.replace(".", "__") for name in (*names, *OLD_NAMES)}
    for variable in sorted(environ):
        name = variable.upper().removeprefix(PREFIX)
        if name == variable.upper() or _NO_SETTINGS.fullmatch(name) or _OF_KUBERNETES.fullmatch(name):
            continue
        # Of an entry of a table, the model itself says what is wrong.
        if name.lower() in known or name.partition("__")[1]:
            continue
        similar = _similar(name.lower().replace("__", "."), names)
        if similar:
            variables = [f"{PREFIX}{each.replace('.', '__').upper()}" for each in similar]
            raise UsageProblem(f"The variable {variable} names no setting.", hint=suggestion(variables))


def rename_old(table: dict[str, Any]) -> None:
    """Give settings of a file that have an old name the name of today."""
    for names, old_names in ((table, OLD_NAMES), (table.get("approved"), _OLD_APPROVED)):
        for old, new in old_names.items():
            if isinstance(names, dict) and old in names:
                value = names.pop(old)
                names.setdefault(new, value)


def unknown_setting(name: str, path: Path, fields: Mapping[str, FieldInfo]) -> UsageProblem:
    """The error for a key of a file that names no setting."""
    hint = suggestion(_similar(name, fields)) or f"There are: {', '.join(fields)}."
    return UsageProblem(f"{path}: there is no setting {name!r}.", hint=hint)


def _similar(name: str, settings: Iterable[str]) -> list[str]:
    """The settings that a name may mean, the likeliest first."""
    if name in _WORDS:
        return [_WORDS[name]]
    return list(dict.fromkeys(_WORDS.get(each, each) for each in similar_names(name, [*settings, *_WORDS])))


def unreadable_variable(error: ValueError) -> UsageProblem:
    """The error for a variable whose value had to be JSON."""
    field = re.search(r'field "(\w+)"', str(error))
    variable = f"{PREFIX}{field[1].upper()}" if field else f"{PREFIX}…"
    return UsageProblem(
        f"The variable {variable} is not JSON, which a list or a table needs.",
        hint=f"""Write a list as '["a", "b"]', and an entry of a table as {variable}__NAME=value.""",
    )


def explained(
    error: ValidationError,
    given: Mapping[str, Any],
    table: Mapping[str, Any],
    path: Path,
    fields: Mapping[str, FieldInfo],
) -> UsageProblem:
    """The error to report for values that are refused: each with the flag, the variable or the file that has
    it. `given`: what flags set; `table`: what the file at `path` sets."""
    problems, hints = [], []
    for item in error.errors(include_input=False, include_url=False):
        keys = [str(part) for part in item["loc"]] or ["settings"]
        name, variable = ".".join(keys), f"{PREFIX}{'__'.join(keys).upper()}"
        from_variable = any(key.upper().startswith(variable) for key in environ)
        if keys[0] in given:
            origin, hint = f"--{name.replace('_', '-')}", ""
        elif from_variable:
            origin, hint = f"The variable {variable}", "Correct the variable, or unset it."
        else:
            origin, hint = (f"{name} in {path}", f"Correct {path}.") if keys[0] in table else (name, "")
        if item["type"] == "extra_forbidden":
            known = [each for each in _dotted(fields) if each.startswith(f"{keys[0]}.")]
            similar = similar_names(name, known)
            if from_variable:
                similar = [f"{PREFIX}{each.replace('.', '__').upper()}" for each in similar]
            hint = suggestion(similar) or f"There are: {', '.join(known)}."
        problems.append(f"{origin}{_reason(item['type'], item['msg'])}")
        hints.append(hint)
    return UsageProblem("\n".join(problems), hint="\n".join(dict.fromkeys(filter(None, hints))))


def _reason(kind: str, message: str) -> str:
    """What follows the name of a setting."""
    if kind == "extra_forbidden":
        return " names no setting."
    reason = plain_reason(message)
    if kind.startswith("byte_size"):
        reason = reason.rstrip(".") if kind != "byte_size" else "this is not a size"
        reason += "; write 500MB, 128MiB, 10GiB."
    return f" {reason}" if reason.startswith("must ") else f": {reason}"


def _dotted(fields: Mapping[str, FieldInfo]) -> list[str]:
    """Names of settings, those of a table's entries with its name before a dot."""
    names = list(fields)
    for name, field in fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            names += [f"{name}.{entry}" for entry in model.model_fields]
    return names
