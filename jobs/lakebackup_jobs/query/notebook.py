"""What the notebooks need of the place where they run: Databricks, Jupyter, or plain Python."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from lakebackup.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebackup_jobs.query.answer import Answer
    from lakebackup_jobs.query.charts import Chart


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


def show(shown: Answer | Chart | None, name: str = "") -> None:
    """Show an answer's rows, or a chart (None: it had no data). Without a notebook the rows are printed, and
    the chart is written to `NAME.html` in the working directory."""
    from lakebackup_jobs.query import charts

    ipython = sys.modules.get("IPython")
    html = charts.to_html(shown) if isinstance(shown, dict) else ""
    if shown is None:
        print(f"{name}: nothing to draw")
    elif ipython is not None and ipython.get_ipython() is not None:
        from IPython.display import HTML, display

        display(HTML(html) if html else shown)
    elif html:
        file = Path(f"{name}.html")
        file.write_text(html, "utf-8")
        print(f"{name}: {file}")
    else:
        cast("Answer", shown).show()
