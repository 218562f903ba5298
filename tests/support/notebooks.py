"""Makes the .ipynb file of each notebook from its source, and runs notebooks in IPython.

The source is Python in the percent format (jupytext). `python -m tests.support.notebooks` writes the .ipynb
files beside the sources.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jupytext
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from lakebackup_jobs.query.answer import Answer
from lakebackup_jobs.query.chart import Chart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[2] / "notebooks"
SOURCES = sorted(FOLDER.glob("*.py"))
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


@dataclass(slots=True)
class NotebookOutput:
    """The output of a notebook: the rows of its tables, its charts, the HTML of both; and its variables."""

    tables: list[list[dict[str, Any]]] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)


def as_ipynb(source: Path) -> str:
    """The .ipynb of a source: the same text each time, without outputs."""
    notebook = jupytext.read(source, fmt="py:percent")
    cells = [
        {
            "cell_type": cell.cell_type,
            "id": f"cell-{number}",
            "metadata": dict(cell.metadata),
            **({"execution_count": None, "outputs": []} if cell.cell_type == "code" else {}),
            "source": cell.source.splitlines(keepends=True),
        }
        for number, cell in enumerate(notebook.cells, 1)
    ]
    metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    notebook_json = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook_json, indent=1, ensure_ascii=False) + "\n"


def run(source: Path, *, spark: SparkSession | None = None, **parameters: Any) -> NotebookOutput:
    """Run all cells in order, as Jupyter's kernel does. The parameters are set after the cell with the tag
    `parameters`, as papermill does. `spark`: the session of a kernel that has one. Raises what a cell
    raises."""
    names = {} if spark is None else {"spark": spark}
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}), user_ns=names)
    shell.system = shell.system_raw
    output = NotebookOutput()
    try:
        for cell in jupytext.read(source, fmt="py:percent").cells:
            if cell.cell_type != "code":
                continue
            with capture_output():
                result = shell.run_cell(cell.source)
            result.raise_error()
            assert not shell.user_ns.get("_exit_code"), cell.source
            _add_output(output, result.result)
            if "parameters" in cell.metadata.get("tags", ()):
                shell.user_ns.update(parameters)
        output.names = dict(shell.user_ns)
    finally:
        shell.restore_sys_module_state()
        InteractiveShell.clear_instance()
    return output


def _add_output(output: NotebookOutput, value: Any) -> None:
    if isinstance(value, Answer | Chart):
        output.pages.append(value._repr_html_())
    if isinstance(value, Answer):
        output.tables.append(value.rows())
    elif isinstance(value, Chart):
        output.charts.append(value)


def main() -> None:
    """Write the .ipynb of each source beside it."""
    for source in SOURCES:
        source.with_suffix(".ipynb").write_text(as_ipynb(source), "utf-8")


if __name__ == "__main__":
    main()
