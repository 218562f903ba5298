"""Bounds of an answer to an agent, which reads all that it gets: rows, bytes and seconds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from lakebackup.errors import UsageProblem
from lakebackup.rows.digest import Digest
from lakebackup.sql_engine.arrow import python_values, type_name
from lakebackup_jobs.runtime.row_text import json_text

# What an answer has at most if its question names no bounds: what fits into the context of a model.
_USUAL = {"rows": 100, "bytes": 64 << 10}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most rows of an answer, bytes of these rows as JSON, and seconds that a question may run."""

    rows: int
    bytes: int
    seconds: float

    def narrowed(self, limits: Mapping[str, Any]) -> Bounds:
        """Return the bounds of one question: those that it names, else the usual ones, none above these.

        Raises UsageProblem when the question names a larger one.
        """
        values = asdict(self)
        for name, most in values.items():
            value = limits.get(name)
            if value is not None and value > most:
                raise UsageProblem(
                    f"{name} {value:,} is more than this server allows: {most:,}.",
                    hint="Ask for less, or count and group in the SELECT.",
                )
            values[name] = min(most, _USUAL.get(name, most)) if value is None else value
        return Bounds(**values)


class Budget:
    """What is left of the bounds of one answer. `cut`: whether something had no room."""

    def __init__(self, bounds: Bounds) -> None:
        self._rows, self._bytes = bounds.rows, bounds.bytes
        self.cut = False

    def fitting(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield plain JSON values of the first items, as many as there is room for."""
        for number, item in enumerate(items):
            text = json_text(item)
            size = len(text.encode())
            if number == self._rows or size > self._bytes:
                self.cut = True
                return
            self._bytes -= size
            yield json.loads(text)


@dataclass(frozen=True, slots=True)
class BoundedRows:
    """The first rows of a result. `complete`: whether they are all. `digest`: of these rows, in any order."""

    columns: list[dict[str, str]]
    rows: list[dict[str, Any]]
    complete: bool
    digest: str


def bounded(batches: pa.RecordBatchReader, bounds: Bounds) -> BoundedRows:
    """Read the first rows of a result. Later ones are not read."""
    columns = [{"name": field.name, "type": type_name(field.type)} for field in batches.schema]
    digest, budget, rows = Digest(), Budget(bounds), []
    with python_values():
        for row in budget.fitting(_each_row(batches)):
            digest.add(json_text(row))
            rows.append(row)
    return BoundedRows(columns, rows, not budget.cut, digest.hex())


def _each_row(batches: pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    """Yield each row by itself: a batch has thousands, and few of them may be needed."""
    for batch in batches:
        for number in range(batch.num_rows):
            yield batch.slice(number, 1).to_pylist()[0]
