"""The page of a statement for people: one HTML page to print, without scripts, which loads nothing.

The statement has the SHA-256 of the page, so the page must not depend on the statement's bytes.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from lakebackup.signing.statement import Evidence
from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.query import words
from lakebackup_jobs.runtime.terminal_text import all_visible

_TITLES = {"drill": "Evidence of a restore drill", "verify": "Evidence of a check of backups"}
_VERDICTS = {
    ("drill", "ok"): "Every restore gave back what was backed up.",
    ("drill", "different"): "A restore did not give back what was backed up.",
    ("drill", "failed"): "A drill failed: it shows nothing about the backup.",
    ("verify", "ok"): "The stored files are those that the catalog describes.",
    ("verify", "different"): "Stored files are missing, changed or damaged.",
    ("verify", "failed"): "The check failed: it shows nothing about the rest.",
}


def page(evidence: Evidence, file_name: str) -> str:
    """Return the page of a statement. `file_name`: the name of the statement's file."""
    values = all_visible(evidence.model_dump(mode="json"))
    return _template().render(
        e=values,
        file_name=all_visible(file_name),
        title=_TITLES[evidence.command],
        verdict=_VERDICTS[evidence.command, evidence.outcome],
        subjects=all_visible(evidence.subjects()),
        style=Markup(_file("page.css")),  # noqa: S704 - a file of this package
    )


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@cache
def _template() -> Template:
    pages = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    pages.filters |= {
        "size": lambda size: "" if size is None else human_bytes(size),
        "number": lambda number: "" if number is None else f"{number:,}",
        "span": words.span,
        "json": _json,
    }
    return pages.from_string(_file("page.html.j2"))
