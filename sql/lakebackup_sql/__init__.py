"""The catalog's SQL, one statement a file, in Spark's dialect, values only as `:name` parameters."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def load(kind: str, name: str) -> str:
    """The text of a statement; `kind` is views, queries or migrations/<number>_<name>. Raises KeyError."""
    if name not in names(kind):
        raise KeyError(f"there is no statement {kind}/{name}")
    return (files(__name__) / kind / f"{name}.sql").read_text(encoding="utf-8")


@cache
def names(kind: str) -> tuple[str, ...]:
    """Names of the statements of a kind, sorted; for `migrations` the folders, in the order they apply."""
    entries = [entry.name for entry in (files(__name__) / kind).iterdir()]
    if kind == "migrations":
        return tuple(sorted(entry for entry in entries if entry[:4].isdigit()))
    return tuple(sorted(entry.removesuffix(".sql") for entry in entries if entry.endswith(".sql")))
