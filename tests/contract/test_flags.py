"""Every flag of a verb has an effect: its function uses it, or a request has a field of its name."""

from __future__ import annotations

import ast
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from lakebackup_jobs import cli

VERBS = [path for path in sorted(Path(cli.__file__).parent.glob("**/*.py")) if "@verb(" in path.read_text()]


def request_fields(module: ast.Module, function: ast.FunctionDef) -> set[str]:
    """The names of the fields of the requests that a function of a module makes with `call.request`."""
    modules = {
        name.name: node.module or ""
        for node in module.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    calls = [
        node for node in ast.walk(function) if isinstance(node, ast.Call) and "request" in ast.dump(node.func)
    ]
    kinds = [call.args[0].id for call in calls if call.args and isinstance(call.args[0], ast.Name)]
    return {
        field.name
        for kind in kinds
        if kind in modules
        for field in fields(getattr(import_module(modules[kind]), kind))
    }


@pytest.mark.parametrize("path", VERBS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_flag_has_an_effect(path: Path) -> None:
    module = ast.parse(path.read_text())
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef) and "verb" in ast.dump(
            ast.Module(function.decorator_list, [])
        ):
            used_names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            parameters = {argument.arg for argument in function.args.args[1:]}
            assert parameters <= used_names | request_fields(module, function), (
                f"{function.name} in {path.name}"
            )
