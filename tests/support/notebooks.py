"""Runs a notebook in Databricks' source format: `spark`, `dbutils`, `display` and `displayHTML` are given.

Format: Databricks documentation, "Export and import Databricks notebooks" (source files) and "Notebook
widgets" (`:name` in SQL is the widget's value).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

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


def run(path: Path, spark: SparkSession, **given: str) -> Shown:
    """Run all cells in order; `given` are values that somebody typed into the widgets."""
    shown = Shown()

    def widget(name: str, value: str = "", *_: Any) -> None:
        shown.widgets[name] = given.get(name, value)

    def show(frame: DataFrame) -> None:
        shown.tables.append([row.asDict(recursive=True) for row in frame.collect()])

    widgets = SimpleNamespace(text=widget, dropdown=widget, combobox=widget, get=shown.widgets.__getitem__)
    shown.names = {
        "__name__": path.stem,
        "spark": spark,
        "dbutils": SimpleNamespace(widgets=widgets),
        "display": show,
        "displayHTML": shown.pages.append,
    }
    for number, (word, text) in enumerate(cells(path), 1):
        if word == "%python":
            exec(compile(text, f"{path.name}, cell {number}", "exec"), shown.names)
        elif word == "%sql":
            show(spark.sql(text, args=_asked(text, shown.widgets)))
        else:
            assert word in _IGNORED, f"{path.name}, cell {number}: {word} is not known"
    return shown


def _asked(text: str, widgets: Mapping[str, str]) -> dict[str, str]:
    return {name: widgets[name] for name in re.findall(r"(?<![:\w]):([a-z_]+)", text)}
