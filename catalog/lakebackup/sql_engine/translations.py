"""Writes each statement's text on DuckDB into the package `lakebackup_sql`, when it is installed or built.

sqlglot takes longer to load, and to translate a few statements, than DuckDB to run them. Where there is no
text, or the statement has changed since it was written, the engine translates the statement each time.

`make setup` runs `python -m lakebackup.sql_engine.translations`, and the build of the wheel calls `write`.
"""

from __future__ import annotations

import os
from pathlib import Path

from lakebackup.sql_engine import translate
from lakebackup_sql import TRANSLATED_KINDS, load, names, translation_file, translation_text


def write() -> None:
    """Write the text of every statement, and delete those of statements that are gone.

    A process that reads meanwhile sees a whole text, old or new.
    """
    paths = set()
    for kind in TRANSLATED_KINDS:
        for name in names(kind):
            statement, path = load(kind, name), Path(str(translation_file(kind, name)))
            paths.add(path)
            text = translation_text(statement, translate(statement))
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                draft = path.with_suffix(f".{os.getpid()}")
                draft.write_text(text, encoding="utf-8")
                draft.replace(path)
        for path in set(Path(str(translation_file(kind))).rglob("*.sql")) - paths:
            path.unlink()


if __name__ == "__main__":
    write()
