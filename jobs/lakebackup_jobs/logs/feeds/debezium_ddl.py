"""Finds the effect of a connector's schema changes on rows that were captured before them. It does no I/O.

The connectors for MySQL, MariaDB, Oracle, SQL Server and Db2 report DDL in the topic `<topic.prefix>`. A
message has `tableChanges` with the tables that were created, altered or dropped, and in `ddl` the statement,
if the database has one. Truncates and renames are only in `ddl`. The statement is split into words, and not
parsed: its verb, the words after it and the names of tables tell its effect.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from lakebackup_jobs.logs.feeds.debezium_tables import TableName

#: Reads the topic's messages: offset, sent (ms), snapshot, ms (when the database made the change), db,
#: schema, ddl, changes (JSON), source (JSON), gtid, file, pos. A value that a message does not have is null.
SCHEMA_CHANGES = r"""
    SELECT "offset", sent, x[1] AS snapshot, TRY_CAST(x[2] AS BIGINT) AS ms, x[3] AS db, x[4] AS schema,
        x[5] AS ddl, x[6] AS changes, x[7] AS source, x[8] AS gtid, x[9] AS file,
        TRY_CAST(x[10] AS BIGINT) AS pos
    FROM (
        SELECT "offset", "timestamp" AS sent,
            json_extract_string(value, [
                '/source/snapshot', '/source/ts_ms', '/databaseName', '/schemaName', '/ddl', '/tableChanges',
                '/source', '/source/gtid', '/source/file', '/source/pos'
            ]) AS x
        FROM records
    )
"""
# Words between the statement's verb and the names of its tables.
_BEFORE_NAMES = {"TABLE", "TABLES", "IF", "EXISTS", "NOWAIT", "WAIT", "ONLINE", "IGNORE", "ONLY"}
# Words after `ALTER TABLE … RENAME` that say that it renames a part of the table, not the table.
_PARTS = {"COLUMN", "INDEX", "KEY", "CONSTRAINT", "PARTITION", "SUBPARTITION", "TRIGGER"}
# Words before the name of a column, which may be any word.
_NAMES_COLUMN = {"ADD", "COLUMN", "MODIFY", "CHANGE", "DROP", "AFTER"}
# Words with which `ALTER TABLE … PARTITION` removes or adds rows without events.
_MOVES_ROWS = {"DROP", "TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT", "DETACH", "ATTACH"}
# A comment, a text, a name in quotes, a name, or a sign.
_PIECE = re.compile(
    r"/\*.*?(?:\*/|$)|--[^\n]*|#[^\n]*|'(?:[^'\\]|\\.|'')*'|`[^`]*`|\"[^\"]*\"|\[[^\]]*\]|[\w$#@]+|[.,]",
    re.DOTALL,
)
_WORD = re.compile(r"`([^`]+)`|\"([^\"]+)\"|\[([^\]]+)\]|([\w$@][\w$#@]*|[.,])")


@dataclass(frozen=True, slots=True)
class Effect:
    """What a schema change does to rows.

    `emptied`: tables that lost all rows. `moved`: tables whose rows changed without events. `change`: how
    they changed, for a person. `dropped_db`: a database that was dropped with all of its tables.
    """

    emptied: tuple[TableName, ...] = ()
    moved: tuple[TableName, ...] = ()
    change: str = ""
    dropped_db: str | None = None

    def __bool__(self) -> bool:
        return bool(self.emptied or self.moved or self.dropped_db)


def effect_of(db: str | None, schema: str | None, ddl: str | None, changes: str | None) -> Effect:
    """Return the effect of a message with these databaseName, schemaName, ddl and tableChanges (JSON).

    If tableChanges names the tables, it goes before the statement, whose names are less exact. A change of
    type ALTER with two names is a rename. Raises ValueError, AttributeError or TypeError for a message of
    another form.
    """
    changed_tables = [
        (table.get("type"), _names(table.get("id"), db, schema))
        for table in json.loads(changes or "[]") or ()
    ]
    dropped = tuple(name for kind, names in changed_tables if kind == "DROP" for name in names)
    altered = tuple(name for kind, names in changed_tables if kind == "ALTER" for name in names)
    if any(kind == "ALTER" and len(names) > 1 for kind, names in changed_tables):
        return Effect(emptied=dropped, moved=altered, change="renamed")
    words = _words(ddl)
    statement = _statement(words, db, schema)
    if dropped:  # Table ids are exact; names in a statement may differ in case.
        return Effect(emptied=dropped, moved=statement.moved, change=statement.change)
    if statement.moved and altered and statement.change != "renamed":
        return Effect(moved=altered, change=statement.change)
    return statement


def identity(row: dict[str, Any]) -> str:
    """Return a text that is the same for all messages of one schema change, which a connector may send
    again."""
    source = json.loads(row["source"] or "{}") or {}
    for name in ("ts_us", "ts_ns", "query"):
        source.pop(name, None)
    return json.dumps([source, row["db"], row["schema"], row["ddl"], row["changes"]], sort_keys=True)


def _statement(words: list[str], db: str | None, schema: str | None) -> Effect:
    """Return the effect of the statement that these words are."""
    upper = [word.upper() for word in words]
    verb, following = (upper[0], upper[1:]) if upper else ("", [])
    match verb:
        case "DROP" if following[:1] == ["TABLE"]:
            return Effect(emptied=_listed(words[2:], db, schema))
        case "DROP" if following[:1] in (["DATABASE"], ["SCHEMA"], ["USER"]) and len(words) > 2:
            return Effect(dropped_db=words[-1] if following[0] != "USER" else _word_after(words, "USER"))
        case "TRUNCATE" if following[:1] != ["CLUSTER"]:
            return Effect(emptied=_listed(words[1:], db, schema))
        case "CREATE" if following[:3] == ["OR", "REPLACE", "TABLE"]:
            return Effect(emptied=_listed(words[4:], db, schema)[:1])
        case "RENAME" if following[:1] != ["USER"]:
            names = [part for piece in _pieces(words[1:]) for part in _split(piece, "TO")]
            return Effect(moved=tuple(filter(None, (_name(n, db, schema) for n in names))), change="renamed")
        case "ALTER" if "TABLE" in following[:2]:
            return _altered(words[upper.index("TABLE") + 1 :], db, schema)
    return Effect()


def _altered(words: list[str], db: str | None, schema: str | None) -> Effect:
    """Return the effect of an ALTER TABLE, whose words after TABLE are `words`."""
    table = _name(words, db, schema)
    upper = [word.upper() for word in words]
    if table is None:
        return Effect()
    for index, word in enumerate(upper):
        following = upper[index + 1] if index + 1 < len(upper) else ""
        is_column = upper[index - 1] in _NAMES_COLUMN
        if word == "RENAME" and following and following not in _PARTS and not is_column:
            new_words = [w for w in words[index + 1 :] if w.upper() not in ("TO", "AS", "=")]
            names = (table, _name(new_words, table.db, table.schema))
            return Effect(moved=tuple(filter(None, names)), change="renamed")
        if word in _MOVES_ROWS and following in ("PARTITION", "SUBPARTITION", "TABLESPACE"):
            return Effect(moved=(table,), change=f"changed by {word} {following}")
    return Effect()


def _words(ddl: str | None) -> list[str]:
    """Return the words of a statement, without comments and texts. Names lose their quotes. Dots and commas
    are words."""
    text = (ddl or "").strip()
    if text.startswith("/*!"):  # MySQL runs the contents of such a comment.
        text = text[3:].lstrip("M0123456789").replace("*/", " ", 1)
    pieces = (_WORD.match(piece[0]) for piece in _PIECE.finditer(text))
    return [next(filter(None, word.groups())) for word in pieces if word]


def _pieces(words: list[str]) -> list[list[str]]:
    """Split words at commas."""
    return _split(words, ",")


def _split(words: list[str], separator: str) -> list[list[str]]:
    pieces: list[list[str]] = [[]]
    for word in words:
        if word.upper() == separator:
            pieces.append([])
        else:
            pieces[-1].append(word)
    return pieces


def _word_after(words: list[str], word: str) -> str:
    return words[[w.upper() for w in words].index(word) + 1]


def _listed(words: list[str], db: str | None, schema: str | None) -> tuple[TableName, ...]:
    """Return the tables of a list with commas."""
    return tuple(filter(None, (_name(piece, db, schema) for piece in _pieces(words))))


def _name(words: list[str], db: str | None, schema: str | None) -> TableName | None:
    """Return the name of the table that words begin with; None when there is none."""
    index = 0
    while index < len(words) and words[index].upper() in _BEFORE_NAMES:
        index += 1
    if index >= len(words):
        return None
    parts = [words[index]]
    while index + 2 < len(words) and words[index + 1] == ".":
        parts.append(words[index + 2])
        index += 2
    return _table(parts, db, schema)


def _names(text: str | None, db: str | None, schema: str | None) -> tuple[TableName, ...]:
    """Return the tables of an id such as `"db"."table"`. A rename has an id with both names and a comma
    between."""
    names, parts, quoted, name_part = [], [], False, ""
    for letter in f"{text or ''},":
        if letter == '"':
            quoted = not quoted
        elif letter in ".," and not quoted:
            parts.append(name_part)
            name_part = ""
            if letter == ",":
                names.append(parts)
                parts = []
        else:
            name_part += letter
    return tuple(_table(parts, db, schema) for parts in names if parts[-1])


def _table(parts: list[str], db: str | None, schema: str | None) -> TableName:
    """Return a table by the one to three parts of its name. Missing parts are taken from the message."""
    *qualifiers, table = parts
    if schema is None:
        return TableName(qualifiers[-1] if qualifiers else db, None, table)
    named_db = qualifiers[-2] if len(qualifiers) > 1 else db
    return TableName(named_db, qualifiers[-1] if qualifiers else schema, table)
