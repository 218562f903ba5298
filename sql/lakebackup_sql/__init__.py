"""Load the catalog's SQL: one statement per file, in Spark's dialect, with values as `:name` parameters.

Views and queries are in folders by area. Names are unique within a kind, so callers need not know the area.
`duckdb/` has the same folders with sqlglot's translation of each statement into DuckDB's dialect. It is not a
source: `lakebackup.sql_engine.translations` writes it when the package is installed or built.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

#: The kinds of statements that have a text on DuckDB.
TRANSLATED_KINDS = ("queries", "views")
_LOADED: dict[str, tuple[str, str]] = {}
"""Text of each loaded statement -> its kind and name."""


class Translation(NamedTuple):
    """A statement in DuckDB's dialect, and the relations that it reads."""

    relations: frozenset[str]
    duckdb: str


@cache
def load(kind: str, name: str) -> str:
    """Load the text of a statement. `kind` is views, queries or migrations/<number>_<name>.

    Raises KeyError if there is no such statement.
    """
    entry = _statements(kind).get(name)
    if entry is None:
        raise KeyError(f"there is no statement {kind}/{name}")
    text = entry[1].read_text(encoding="utf-8")
    _LOADED[text] = kind, name
    return text


@cache
def translation(text: str) -> Translation | None:
    """The written translation of a statement that `load` returned.

    None for any other text, and for a statement that changed after its translation was written.
    """
    kind, name = _LOADED.get(text, ("", ""))
    if kind not in TRANSLATED_KINDS:
        return None
    try:
        head, _, duckdb = translation_file(kind, name).read_text(encoding="utf-8").partition("\n")
    except FileNotFoundError:
        return None
    _, digest, *relations = head.split()
    return Translation(frozenset(relations), duckdb.rstrip("\n")) if digest == _digest(text) else None


def translation_file(kind: str, name: str = "") -> Traversable:
    """The file with the translation of a statement; without a name the folder of a kind."""
    folder = files(__name__).joinpath("duckdb", kind)
    return folder.joinpath(*area(kind, name).split("/"), f"{name}.sql") if name else folder


def translation_text(text: str, translated: Translation) -> str:
    """The content of a translation's file: a line with digest and relations, then the translated text."""
    return f"-- {' '.join([_digest(text), *sorted(translated.relations)])}\n{translated.duckdb}\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def names(kind: str) -> tuple[str, ...]:
    """The sorted names of the statements of a kind; for `migrations` the folders, in the order they apply."""
    if kind == "migrations":
        folders = (entry.name for entry in files(__name__).joinpath(kind).iterdir())
        return tuple(sorted(folder for folder in folders if folder[:4].isdigit()))
    return tuple(sorted(_statements(kind)))


def area(kind: str, name: str) -> str:
    """The folder of a statement within its kind, such as `prune` or `restore/topics`. Raises KeyError."""
    return _statements(kind)[name][0]


@cache
def _statements(kind: str) -> Mapping[str, tuple[str, Traversable]]:
    """Name of each statement of a kind -> its area and file."""
    statements: dict[str, tuple[str, Traversable]] = {}
    for folder, file in _files(files(__name__).joinpath(kind)):
        name = file.name.removesuffix(".sql")
        if name in statements:
            raise ValueError(f"{kind} has two statements {name}: in {statements[name][0]} and in {folder}")
        statements[name] = folder, file
    return statements


def _files(parent: Traversable, area: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yield the SQL files below a folder, each with its area: the relative path of its folder."""
    for child in parent.iterdir():
        if child.is_dir():
            yield from _files(child, f"{area}/{child.name}" if area else child.name)
        elif child.name.endswith(".sql"):
            yield area, child
