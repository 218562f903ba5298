"""How a run reports what it does: a bar for a person, silence for a pipe, JSON lines for a machine.

Standard output carries results only (with --json: every event); progress, notes and warnings go to
standard error, so that `lakebackup … > file` never mixes the two.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TextIO

from lakebackup_jobs.runtime.terminal_text import bold, table_lines, visible, visible_lines, widths_of

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from rich.progress import Progress, TaskID

_JSON_INTERVAL_S = 1.0


class Reporter:
    """What a run may report, for pipes and logs: results on `out`, warnings on `err`, nothing else.

    Use it in a `with` block; every count is a total so far, not a step.
    """

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = out, err

    def start(self, total_records: int | None, total_bytes: int | None, what: str = "") -> None:
        """A stage of the work begins; `None` where it is not known how much it is."""

    def update(self, done_records: int, done_bytes: int) -> None:
        """How much of the stage is done."""

    def note(self, text: str) -> None:
        """Something a person watching wants to know, and a pipe does not."""

    def warning(self, text: str) -> None:
        """Something to know even when nobody watches."""
        print(f"warning: {visible_lines(text)}", file=self._err, flush=True)

    def result(self, values: Mapping[str, Any]) -> None:
        """What came of it: scalars, and lists of mappings for tables."""
        print_result(values, self._out)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class JsonReporter(Reporter):
    """JSON lines on `out`, each an object with `event`; progress at most once a second."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        super().__init__(out, err)
        self._stage: dict[str, Any] = {}
        self._started = self._last = 0.0

    def start(self, total_records: int | None, total_bytes: int | None, what: str = "") -> None:
        self._stage = {"stage": what, "total_records": total_records, "total_bytes": total_bytes}
        self._started = time.monotonic()
        self._last = -_JSON_INTERVAL_S
        self._emit("start", self._stage)

    def update(self, done_records: int, done_bytes: int) -> None:
        now = time.monotonic()
        if now - self._last >= _JSON_INTERVAL_S:
            self._last = now
            done = {"records": done_records, "bytes": done_bytes, "elapsed_s": round(now - self._started, 3)}
            self._emit("progress", self._stage | done)

    def note(self, text: str) -> None:
        self._emit("note", {"message": text})

    def warning(self, text: str) -> None:
        self._emit("warning", {"message": text})

    def result(self, values: Mapping[str, Any]) -> None:
        self._emit("result", values)

    def _emit(self, event: str, values: Mapping[str, Any]) -> None:
        # One write a line: progress comes from a thread of its own.
        self._out.write(json.dumps({"event": event, **values}, default=str) + "\n")
        self._out.flush()


class TerminalReporter(Reporter):
    """A bar with rate and time left on `err` while somebody watches."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        from rich.console import Console

        super().__init__(out, err)
        self._console: Console = Console(file=err)
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._by_bytes = True

    def start(self, total_records: int | None, total_bytes: int | None, what: str = "") -> None:
        # Offsets give the number of records but not of bytes: the bar then counts records.
        self._by_bytes = total_bytes is not None
        bar = self._bar()
        if self._task is not None:
            bar.update(self._task, visible=False)
        self._task = bar.add_task(
            visible(what), total=total_bytes if self._by_bytes else total_records, rate="", done=""
        )

    def update(self, done_records: int, done_bytes: int) -> None:
        # A watching thread may call while the bar is being removed.
        progress, number = self._progress, self._task
        if progress is None or number is None:
            return
        task = next(task for task in progress.tasks if task.id == number)
        spent = max(task.elapsed or 0.0, 1e-3)
        progress.update(
            number,
            completed=done_bytes if self._by_bytes else done_records,
            done=f"{done_records:,} records, {human_bytes(done_bytes)}",
            rate=f"{done_records / spent:,.0f}/s, {human_bytes(round(done_bytes / spent))}/s",
        )

    def note(self, text: str) -> None:
        self._console.print(visible_lines(text), style="dim", markup=False, highlight=False)

    def warning(self, text: str) -> None:
        self._console.print(f"warning: {visible_lines(text)}", style="yellow", markup=False, highlight=False)

    def result(self, values: Mapping[str, Any]) -> None:
        self._stop()
        super().result(values)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _bar(self) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[done]}"),
                TextColumn("[dim]{task.fields[rate]}"),
                TimeElapsedColumn(),
                TextColumn("[dim]left"),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
                expand=True,
            )
            self._progress.start()
        return self._progress

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = self._task = None


def reporter(*, as_json: bool, out: TextIO | None = None, err: TextIO | None = None) -> Reporter:
    """The fitting reporter for these streams (standard output and error when not given)."""
    out, err = out or sys.stdout, err or sys.stderr
    if as_json:
        return JsonReporter(out, err)
    return TerminalReporter(out, err) if err.isatty() else Reporter(out, err)


def human_bytes(size: int) -> str:
    """`size` bytes with a unit, such as `1.5 MB` (decimal units, as disks and networks are sold)."""
    from rich.filesize import decimal

    return decimal(size)


def print_result(values: Mapping[str, Any], out: TextIO) -> None:
    """A result for people: one line a scalar, a table for each list of mappings."""
    scalars: list[list[str]] = []
    tables: dict[str, list[list[str]]] = {}
    for name, value in values.items():
        if (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and value
            and isinstance(value[0], Mapping)
        ):
            rows = [[display(key, cell) for key, cell in row.items()] for row in value]
            tables[_label(name)] = [[*map(visible, value[0])], *rows]
        elif value is not None and value != []:
            scalars.append([_label(name), display(name, value)])
    out.writelines(table_lines(scalars, widths_of(scalars)))
    for title, table in tables.items():
        header, *lines = table_lines(table, widths_of(table))
        out.writelines([f"{title}\n", bold(header, out), *lines])


# In ms beyond any calendar: a ts of a timestamp oracle, which has its ms in the upper bits.
_ORACLE = 1 << 48


def display(name: str, value: Any) -> str:
    """One value as visible text; its name's ending names the unit (`bytes`, `_ts` ms, `_at` µs, `_s`)."""
    return visible(_display(name, value))


def _display(name: str, value: Any) -> str:
    from lakebackup.rules.times import format_ts

    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if name == "bytes" or name.endswith("_bytes"):
            return human_bytes(value)
        if name == "ts" or name.endswith("_ts"):
            return format_ts(value if value < _ORACLE else value >> 18)
        if name == "at" or name.endswith("_at"):
            return format_ts(value // 1000)
        return str(value)
    if isinstance(value, float):
        return f"{value:.2f} s" if name.endswith("_s") else f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_display(key, item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_display(name, item) for item in value)
    return str(value)


def _label(name: str) -> str:
    return visible(name.replace("_", " "))
