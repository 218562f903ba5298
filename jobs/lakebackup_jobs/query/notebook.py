"""What the notebooks need of the place where they run: Databricks, Jupyter, or plain Python."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lakebackup.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebackup_jobs.query.answer import Answer


def parameters(names: Mapping[str, Any], **defaults: str) -> SimpleNamespace:
    """What somebody asks a notebook for, by name: the widgets on Databricks, whose `dbutils` is among the
    notebook's `names`; elsewhere the words NAME=VALUE of the command line, or of `%run FILE` in Jupyter.

    Raises UsageProblem for such a word without a default.
    """
    if dbutils := names.get("dbutils"):
        for name, value in defaults.items():
            dbutils.widgets.text(name, value)
        return SimpleNamespace(**{name: dbutils.widgets.get(name) for name in defaults})
    given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word and not word.startswith("-"))
    if unknown := sorted(given.keys() - defaults.keys()):
        raise UsageProblem(
            f"This notebook has no parameter {unknown[0]}.", hint=f"It has {', '.join(defaults)}."
        )
    return SimpleNamespace(**(defaults | given))


def show(shown: Answer | str, name: str = "") -> None:
    """Show an answer's rows, or an SVG. Without a notebook the rows are printed, and the SVG is written to
    `NAME.svg` in the working directory."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        from IPython.display import HTML, display

        display(HTML(f"<h4>{name}</h4>{shown}") if isinstance(shown, str) else shown)
    elif isinstance(shown, str):
        file = Path(f"{name.replace('/', '_')}.svg")
        file.write_text(shown, "utf-8")
        print(f"{name}: {file}")
    else:
        shown.show()
