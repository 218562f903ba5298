"""Runs a notebook in Databricks' source format, with what the place gives it: on Databricks `spark`,
`dbutils` and IPython, in Jupyter IPython alone.

Format: Databricks documentation, "Export and import Databricks notebooks" (source files).
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

HEADER, BREAK, MAGIC = "# Databricks notebook source", "# COMMAND ----------", "# MAGIC"
_IGNORED = ("%md", "%pip", "%restart_python")


@dataclass(slots=True)
class Shown:
    """What a notebook showed: tables, pages of HTML, the widgets' values, and its variables at the end."""

    tables: list[list[dict[str, Any]]] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    widgets: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)


def cells(path: Path) -> list[tuple[str, str]]:
    """The cells of a notebook: its magic word (`%python` where there is none), and its text."""
    first, _, text = path.read_text("utf-8").partition("\n")
    assert first == HEADER, f"{path.name} lacks the first line that Databricks looks for"
    found = []
    for cell in re.split(rf"^{BREAK}$", text, flags=re.MULTILINE):
        lines = cell.strip().splitlines()
        magic = [line.removeprefix(MAGIC).removeprefix(" ") for line in lines if line.startswith(MAGIC)]
        assert len(magic) in (0, len(lines)), f"{path.name} mixes magic and Python in one cell: {cell}"
        word, _, rest = magic[0].partition(" ") if magic else ("%python", "", cell)
        found.append((word, "\n".join([rest, *magic[1:]])))
    return found


def run(path: Path, spark: SparkSession | None = None, **given: str) -> Shown:
    """Run all cells in order. On Databricks where there is a session, and `given` are typed into the widgets;
    else in Jupyter, and they are words of `%run`."""
    shown = Shown()

    def widget(name: str, value: str) -> None:
        shown.widgets[name] = given.get(name, value)

    shown.names = {"__name__": "__main__"}
    if spark is not None:
        widgets = SimpleNamespace(text=widget, get=shown.widgets.__getitem__)
        shown.names |= {"spark": spark, "dbutils": SimpleNamespace(widgets=widgets)}
    words = [] if spark else [f"{name}={value}" for name, value in given.items()]
    with mock.patch.object(sys, "argv", [path.name, *words]), _ipython(shown):
        for number, (word, text) in enumerate(cells(path), 1):
            if word == "%python":
                exec(compile(text, f"{path.name}, cell {number}", "exec"), shown.names)
            else:
                assert word in _IGNORED, f"{path.name}, cell {number}: {word} is not known"
    return shown


@contextmanager
def _ipython(shown: Shown) -> Iterator[None]:
    """The little of IPython that a notebook uses; IPython is no dependency."""

    def display(what: Any) -> None:
        if isinstance(what, str):
            shown.pages.append(what)
        else:
            assert "<table" in what._repr_html_()
            shown.tables.append(what.rows())

    ipython, displays = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.__dict__.update(get_ipython=lambda: shown, display=displays)
    displays.__dict__.update(HTML=str, display=display)
    with pytest.MonkeyPatch.context() as patch:  # of these two alone: a notebook imports others
        patch.setitem(sys.modules, "IPython", ipython)
        patch.setitem(sys.modules, "IPython.display", displays)
        yield
