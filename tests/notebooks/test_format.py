"""Jupyter can open the notebooks. They use only the public API and name no machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import jupytext
import nbformat
import pytest
from tests.support.notebooks import FOLDER, SOURCES, as_ipynb

EACH_SOURCE = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def test_every_source_has_an_ipynb() -> None:
    assert [path.stem[:2] for path in SOURCES] == ["00", "01", "02", "03", "04", "05", "06"]
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {path.stem for path in SOURCES}


@EACH_SOURCE
def test_the_ipynb_agrees_with_its_source(source: Path) -> None:
    """`python -m tests.support.notebooks` writes the .ipynb files."""
    file = source.with_suffix(".ipynb")
    assert file.read_text("utf-8") == as_ipynb(source)
    nbformat.validate(nbformat.read(file, as_version=4))


@EACH_SOURCE
def test_only_the_public_package_is_imported(source: Path) -> None:
    imported = {
        module
        for node in ast.walk(ast.parse(source.read_text("utf-8")))
        for module in _modules(node)
        if module.startswith(("lakebackup", "pyspark_lakebackup"))
    }
    assert imported == (set() if source.stem == "06_without_lakebackup" else {"lakebackup"})


@EACH_SOURCE
def test_cells_are_not_empty_and_name_no_machine(source: Path) -> None:
    first, *cells = jupytext.read(source, fmt="py:percent").cells
    assert first.source.startswith("# ")
    assert all(cell.source.strip() for cell in cells)
    assert not re.search(r"/tmp|/home|/root|file:|localhost|127\.0\.0\.1", source.read_text("utf-8"))


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
