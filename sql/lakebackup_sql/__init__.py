"""The catalog's SQL, one statement a file, in Spark's dialect, values only as `:name` parameters.

Views and queries lie in folders by area. A name is unique in its kind, so callers need not know its area.
`duckdb/` has the same folders, with each statement's text on DuckDB as sqlglot translates it. It is not a
source: `lakebackup.sql_engine.translations` writes it when the package is installed or built.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

#: The kinds of statements that have a text on DuckDB.
TRANSLATED_KINDS = ("queries", "views")
_LOADED: dict[str, tuple[str, str]] = {}
"""Text of a statement that was loaded -> its kind and name."""


class Translation(NamedTuple):
    """A statement's text on DuckDB, and the relations that it reads."""

    relations: frozenset[str]
    duckdb: str


@cache
def load(kind: str, name: str) -> str:
    """The text of a statement; `kind` is views, queries or migrations/<number>_<name>. Raises KeyError."""
    found = _statements(kind).get(name)
    if found is None:
        raise KeyError(f"there is no statement {kind}/{name}")
    text = found[1].read_text(encoding="utf-8")
    _LOADED[text] = kind, name
    return text


@cache
def translation(text: str) -> Translation | None:
    """The translation of a statement that `load` gave, as it was written; None for another text, and where
    the statement has changed since."""
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
    """Where the translation of a statement is; without a name the folder of a kind."""
    folder = files(__name__).joinpath("duckdb", kind)
    return folder.joinpath(*area(kind, name).split("/"), f"{name}.sql") if name else folder


def translation_text(text: str, translated: Translation) -> str:
    """The content of a translation's file: the statement's digest, the relations that it reads, its text."""
    return f"-- {' '.join([_digest(text), *sorted(translated.relations)])}\n{translated.duckdb}\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def names(kind: str) -> tuple[str, ...]:
    """Names of the statements of a kind, sorted; for `migrations` the folders, in the order they apply."""
    if kind == "migrations":
        folders = (entry.name for entry in files(__name__).joinpath(kind).iterdir())
        return tuple(sorted(folder for folder in folders if folder[:4].isdigit()))
    return tuple(sorted(_statements(kind)))


def area(kind: str, name: str) -> str:
    """The folder of a statement within its kind, such as `prune` or `restore/topics`. Raises KeyError."""
    return _statements(kind)[name][0]


@cache
def _statements(kind: str) -> Mapping[str, tuple[str, Traversable]]:
    """Name of each statement of a kind -> its area and its file."""
    found: dict[str, tuple[str, Traversable]] = {}
    for folder, file in _files(files(__name__).joinpath(kind)):
        name = file.name.removesuffix(".sql")
        if name in found:
            raise ValueError(f"{kind} has two statements {name}: in {found[name][0]} and in {folder}")
        found[name] = folder, file
    return found


def _files(place: Traversable, area: str = "") -> Iterator[tuple[str, Traversable]]:
    """The SQL files below a folder, each with the path of its own folder."""
    for entry in place.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{area}/{entry.name}" if area else entry.name)
        elif entry.name.endswith(".sql"):
            yield area, entry
