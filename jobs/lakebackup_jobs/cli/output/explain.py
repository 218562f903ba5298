"""`--explain`: prints the SQL that decides a plan, with its parameters. Nothing is changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from lakebackup.sql_engine import RAW, RecordedQuery, recording, relations_in
from lakebackup_jobs.lifecycle.progress import JSON_VERSION
from lakebackup_jobs.runtime.terminal_text import visible
from lakebackup_sql import names


def explain(plan: Callable[[], Any], clear: Callable[[], None], *, as_json: bool) -> None:
    """Run `plan`, which changes nothing, and print its queries of the catalog, also when it raises.

    `clear` removes progress from the terminal before that.
    """
    with recording() as queries:
        try:
            plan()
        finally:
            clear()
            write(queries, as_json=as_json)


def write(queries: Sequence[RecordedQuery], *, as_json: bool) -> None:
    """Write each statement once, in order.

    The text is Spark SQL. Comments above it name the parameters, the inputs, and the engine if it changed.
    """
    written_keys: set[str] = set()
    defined_names: set[str] = set()
    last_engine: str | None = None
    for engine, name, text, parameters in queries:
        values = {key: parameters[key] for key in sorted(parameters)}
        query_key = json.dumps([engine, name, text, values], default=str)
        if query_key in written_keys:
            continue
        written_keys.add(query_key)
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
            notes = _notes(name, text, values, defined_names)
            notes = notes if engine == last_engine else [f"engine: {engine}", *notes]
            sys.stdout.write("".join(f"-- {visible(line)}\n" for line in notes))
            sys.stdout.write(f"{text.strip()};\n\n")
            last_engine = engine
        defined_names.add(name)
    sys.stdout.flush()


def _notes(name: str, text: str, values: dict[str, Any], defined: set[str]) -> list[str]:
    lines = [name]
    lines += [
        f":{key} = {json.dumps(value, default=str, ensure_ascii=False)}" for key, value in values.items()
    ]
    for relation in sorted(relations_in(text) - set(names("views"))):
        if not relation.startswith((RAW, "now_")):
            origin = "the statement above" if relation in defined else "rows that lakebackup computes itself"
            lines.append(f"{relation}: {origin}")
    return lines
