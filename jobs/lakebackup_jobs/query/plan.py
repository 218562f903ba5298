"""The plan of a restore, as a value that prints itself as a summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakebackup_jobs.lifecycle.progress import display
from lakebackup_jobs.query.words import counted
from lakebackup_jobs.runtime.terminal_table import table
from lakebackup_jobs.runtime.terminal_text import visible, visible_lines

_COLUMNS = {
    "topic": "topic",
    "into": "target",
    "partitions": "partitions",
    "records": "entries",
    "size": "bytes",
    "up to": "reaches",
}


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """What a restore would read and write. Making a plan writes nothing.

    `print` shows a summary. `refused` says why the restore would be refused; it is None if the restore can be
    carried out:

        plan = con.plan_restore("orders", to="delta:./orders", to_time="2026-11-21T14:05Z")
        print(plan)
        if plan.refused is None:
            con.restore("orders", to="delta:./orders", to_time="2026-11-21T14:05Z")

    `files`, `bytes` and `entries` count the files that the restore would read, their stored bytes, and the
    records in them. `hint` says what to do about a refusal. `details` is the output of
    `lakebackup restore topics --dry-run --json`.
    """

    to: str
    files: int
    bytes: int
    entries: int
    refused: str | None
    hint: str
    details: Mapping[str, Any]

    def __repr__(self) -> str:
        """Return the summary."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        topics = self.details["topics"]
        until = f" up to {self.details['to_time']}" if self.details["to_time"] else ""
        size = display("bytes", self.bytes)
        yield (
            f"Restore {counted(len(topics), 'topic')} of {visible(self.details['source'])} into "
            f"{visible(self.to)}{until}: {counted(self.files, 'file')}, {size}, "
            f"{counted(self.entries, 'record')}."
        )
        cells = [[display(field, topic[field]) for field in _COLUMNS.values()] for topic in topics]
        numbers = [field in ("partitions", "entries", "bytes") for field in _COLUMNS.values()]
        yield from (line.rstrip() for line in table([*_COLUMNS], cells, numbers=numbers))
        if "records" in self.details:
            selected = counted(self.details["records"], "record")
            size = display("bytes", self.details["record_bytes"])
            yield f"The SELECT returns {selected}, {size}."
        yield f"Estimated time: {visible(self.details['estimate'])}."
        for note in self.details.get("notes", ()):
            yield f"Note: {visible(note)}."
        if self.refused is None:
            yield "It can be carried out."
        else:
            yield f"It would be refused. {visible_lines(self.refused)}"
            if self.hint:
                yield visible_lines(self.hint)
