"""`--explain`: the SQL that decides a plan, as it is asked, with its parameters; nothing is changed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from lakebackup_jobs.lifecycle.progress import JSON_VERSION
from lakebackup_jobs.runtime.terminal_text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebackup.sql_engine import Asked


def explain(plan: Callable[[], Any], clear: Callable[[], None], *, as_json: bool) -> None:
    """Run `plan`, which changes nothing, and print what it asked the catalog, also when it raises. `clear`
    makes room for that."""
    from lakebackup.sql_engine import recording

    with recording() as asked:
        try:
            plan()
        finally:
            clear()
            write(asked, as_json=as_json)


def write(asked: Sequence[Asked], *, as_json: bool) -> None:
    """Each statement once, in order: Spark SQL under comments on its parameters and inputs, and, where it
    changes, on the engine that runs it."""
    known: set[str] = set()
    defined: set[str] = set()
    before: str | None = None
    for engine, name, text, parameters in asked:
        values = {key: parameters[key] for key in sorted(parameters)}
        same = json.dumps([engine, name, text, values], default=str)
        if same in known:
            continue
        known.add(same)
        if as_json:
            line = {
                "v": JSON_VERSION,
                "query": name,
                "engine": engine,
                "sql": text.strip(),
                "parameters": values,
            }
            sys.stdout.write(json.dumps(line, default=str) + "\n")
        else:
            notes = _notes(name, text, values, defined)
            notes = notes if engine == before else [f"engine: {engine}", *notes]
            sys.stdout.write("".join(f"-- {visible(line)}\n" for line in notes))
            sys.stdout.write(f"{text.strip()};\n\n")
            before = engine
        defined.add(name)
    sys.stdout.flush()


def _notes(name: str, text: str, values: dict[str, Any], defined: set[str]) -> list[str]:
    from lakebackup.sql_engine import RAW, relations_in
    from lakebackup_sql import names

    lines = [name]
    lines += [
        f":{key} = {json.dumps(value, default=str, ensure_ascii=False)}" for key, value in values.items()
    ]
    for relation in sorted(relations_in(text) - set(names("views"))):
        if not relation.startswith((RAW, "now_")):
            where = "the statement above" if relation in defined else "rows that lakebackup computes itself"
            lines.append(f"{relation}: {where}")
    return lines
