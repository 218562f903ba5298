"""Every flag of a verb has an effect: its function uses it, or a request has a field of its name."""

from __future__ import annotations

import ast
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from lakebackup_jobs import cli

VERBS = [path for path in sorted(Path(cli.__file__).parent.glob("**/*.py")) if "@verb(" in path.read_text()]


def requests(function: ast.FunctionDef) -> set[str]:
    """The fields of the requests that a function makes by `call.request`."""
    where = {
        name.name: node.module or ""
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    calls = [
        node for node in ast.walk(function) if isinstance(node, ast.Call) and "request" in ast.dump(node.func)
    ]
    kinds = [one.args[0].id for one in calls if one.args and isinstance(one.args[0], ast.Name)]
    return {
        field.name
        for kind in kinds
        if kind in where
        for field in fields(getattr(import_module(where[kind]), kind))
    }


@pytest.mark.parametrize("path", VERBS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_flag_has_an_effect(path: Path) -> None:
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef) and "verb" in ast.dump(
            ast.Module(function.decorator_list, [])
        ):
            used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            own = {one.arg for one in function.args.args[1:]}
            assert own <= used | requests(function), f"{function.name} in {path.name}"
