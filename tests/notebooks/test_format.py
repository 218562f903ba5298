"""The notebooks are such as Databricks takes, and name no machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.support.notebooks import cells

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.py"))


def test_they_are_all_there() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06", "07"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_they_are_notebooks_of_databricks_and_of_no_machine(path: Path) -> None:
    found = cells(path)
    assert {word for word, _ in found} == {"%md", "%pip", "%restart_python", "%python"}
    for word, text in found:
        if word == "%python":
            ast.parse(text)
    assert not re.search(r"/tmp|/home|/root|file:|localhost|127\.0\.0\.1", path.read_text("utf-8"))
