"""How a run reports what it does: a bar for a person, silence for a pipe, JSON lines for a machine.

Standard output carries results only (with --json: every event); progress, notes and warnings go to
standard error, so that `lakebackup … > file` never mixes the two.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TextIO

from lakebackup_jobs.runtime.terminal_table import is_state, screen_of, table, table_lines, widths_of
from lakebackup_jobs.runtime.terminal_text import visible, visible_lines

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from lakebackup_jobs.runtime.terminal_table import Screen

    ResultPrinter = Callable[[Mapping[str, Any], TextIO, Screen | None], None]

_JSON_INTERVAL_S = 1.0
_PATIENCE_S = 2.0
"""What takes longer than this gets a bar that moves."""
JSON_VERSION = 1
"""Of the objects of JSON that are not rows: their `v`. Higher when a key goes or changes its meaning."""


class Reporter:
    """What a run may report, for pipes and logs: results on `out`, warnings on `err`, nothing else.

    Use it in a `with` block; every count is a total so far, not a step. `wide`: results are shown in full.
    `printer` prints a result for a person; by default, every field of it.
    """

    def __init__(
        self, out: TextIO, err: TextIO, *, wide: bool = False, printer: ResultPrinter | None = None
    ) -> None:
        self._out, self._err, self._wide = out, err, wide
        self._print_result = printer or print_result

    def wait(self, what: str) -> None:
        """What a person waits for, until there is progress or output; costs next to nothing."""

    def start(
        self, total: int | None, total_bytes: int | None, what: str = "", unit: str = "records"
    ) -> None:
        """A stage of the work begins; `None` where it is not known how much it is. `unit`: what is counted
        beside bytes, in the plural; "" where only bytes are."""

    def update(self, done: int, done_bytes: int) -> None:
        """How much of the stage is done."""

    def clear(self) -> None:
        """Make room for output that does not come through here."""

    def note(self, text: str) -> None:
        """Something a person watching wants to know, and a pipe does not."""

    def warning(self, text: str) -> None:
        """Something to know even when nobody watches."""
        print(f"warning: {visible_lines(text)}", file=self._err, flush=True)

    def result(self, values: Mapping[str, Any]) -> None:
        """What came of it: scalars, and lists of mappings for tables."""
        with reader_may_leave(self._out):
            self._print_result(values, self._out, screen_of(self._out, wide=self._wide))
            self._out.flush()

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

    def start(
        self, total: int | None, total_bytes: int | None, what: str = "", unit: str = "records"
    ) -> None:
        self._stage = {"stage": what, "unit": unit, "total": total, "total_bytes": total_bytes}
        self._started = time.monotonic()
        self._last = -_JSON_INTERVAL_S
        self._emit("start", self._stage)

    def update(self, done: int, done_bytes: int) -> None:
        now = time.monotonic()
        if now - self._last >= _JSON_INTERVAL_S:
            self._last = now
            so_far = {"done": done, "bytes": done_bytes, "elapsed_s": round(now - self._started, 3)}
            self._emit("progress", self._stage | so_far)

    def note(self, text: str) -> None:
        self._emit("note", {"message": text})

    def warning(self, text: str) -> None:
        self._emit("warning", {"message": text})

    def result(self, values: Mapping[str, Any]) -> None:
        self._emit("result", values)

    def _emit(self, event: str, values: Mapping[str, Any]) -> None:
        # One write a line: progress comes from a thread of its own.
        with reader_may_leave(self._out):
            self._out.write(f"{event_line(event, values)}\n")
            self._out.flush()


class TerminalReporter(Reporter):
    """A bar with rate and time left on `err` while somebody watches. Rich is loaded for the first bar."""

    def __init__(
        self, out: TextIO, err: TextIO, *, wide: bool = False, printer: ResultPrinter | None = None
    ) -> None:
        super().__init__(out, err, wide=wide, printer=printer)
        self._lock = threading.RLock()
        self._made: Console | None = None
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._what, self._unit, self._by_bytes = "", "", True
        self._timer: threading.Timer | None = None

    def wait(self, what: str) -> None:
        with self._lock:
            if self._progress is not None and self._task is not None:
                self._progress.update(self._task, description=visible(what), refresh=True)
                return
            self._erase()
            if os.environ.get("TERM") != "dumb":
                self._err.write(f"\x1b[2m{visible(what)} …\x1b[0m")
                self._err.flush()
            self._timer = threading.Timer(_PATIENCE_S, self._still_waits, [what])
            self._timer.daemon = True
            self._timer.start()

    def start(
        self, total: int | None, total_bytes: int | None, what: str = "", unit: str = "records"
    ) -> None:
        with self._lock:
            # Offsets give the number of records but not of bytes: the bar then counts records.
            self._what, self._unit, self._by_bytes = what, unit, total_bytes is not None
            bar = self._bar()
            if self._task is not None:
                bar.update(self._task, visible=False)
            whole = total_bytes if self._by_bytes else total
            self._task = bar.add_task(visible(what), total=whole, rate="", done="")

    def update(self, done: int, done_bytes: int) -> None:
        # A watching thread may call while the bar is being removed.
        progress, number = self._progress, self._task
        if progress is None or number is None or not done:
            return
        task = next(task for task in progress.tasks if task.id == number)
        spent, size = max(task.elapsed or 0.0, 1e-3), human_bytes(done_bytes)
        rate = (
            human_bytes(round(done_bytes / spent)) if self._by_bytes else f"{done / spent:,.0f} {self._unit}"
        )
        counts = [f"{done:,} {self._unit}"] if self._unit else []
        progress.update(
            number,
            description=visible(self._what),
            completed=done_bytes if self._by_bytes else done,
            done=", ".join(counts + [size] * bool(done_bytes or not counts)),
            rate=f"{rate}/s",
        )

    def note(self, text: str) -> None:
        self._console.print(visible_lines(text), style="dim", markup=False, highlight=False)

    def warning(self, text: str) -> None:
        self._console.print(f"warning: {visible_lines(text)}", style="yellow", markup=False, highlight=False)

    def result(self, values: Mapping[str, Any]) -> None:
        self.clear()
        super().result(values)

    def clear(self) -> None:
        with self._lock:
            self._erase()
            if self._progress is not None:
                self._progress.stop()
                self._progress = self._task = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def _still_waits(self, what: str) -> None:
        with self._lock:
            if self._timer is threading.current_thread():
                self.start(None, None, what, "")

    def _erase(self) -> None:
        """Erase the line that says what a person waits for."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
                if os.environ.get("TERM") != "dumb":
                    self._err.write("\r\x1b[K")
                    self._err.flush()

    @property
    def _console(self) -> Console:
        self._erase()
        if self._made is None:
            from rich.console import Console

            self._made = Console(file=self._err)
        return self._made

    def _bar(self) -> Progress:
        if self._progress is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[done]}"),
                TextColumn("[dim]{task.fields[rate]}"),
                TimeElapsedColumn(),
                TextColumn("[dim]left"),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
                expand=True,
                redirect_stdout=False,
            )
            self._progress.start()
        return self._progress


def reporter(
    *,
    as_json: bool,
    wide: bool = False,
    out: TextIO | None = None,
    err: TextIO | None = None,
    printer: ResultPrinter | None = None,
) -> Reporter:
    """The fitting reporter for these streams (standard output and error when not given). `printer`: how a
    person gets results, see `Reporter`."""
    out, err = out or sys.stdout, err or sys.stderr
    if as_json:
        return JsonReporter(out, err)
    return (TerminalReporter if err.isatty() else Reporter)(out, err, wide=wide, printer=printer)


@contextmanager
def reader_may_leave(out: TextIO | None = None) -> Iterator[None]:
    """End quietly when whoever reads the output (standard output when not given) has gone."""
    out = out or sys.stdout
    try:
        yield
    except BrokenPipeError:
        # Python flushes once more when it ends; that must not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def event_line(event: str, values: Mapping[str, Any]) -> str:
    """An event as one line of JSON, without its end."""
    return json.dumps({"event": event, "v": JSON_VERSION, **values}, default=str)


def human_bytes(size: int) -> str:
    """`size` bytes with a unit, such as `1.5 MB` (decimal units, as disks and networks are sold)."""
    from rich.filesize import decimal

    return decimal(size)


def print_result(values: Mapping[str, Any], out: TextIO, screen: Screen | None = None) -> None:
    """A result for people: one line a scalar, a table for each list of mappings, which fits the `screen`."""
    now = time.time_ns() // 1_000_000 if screen and screen.width is not None else None
    scalars: list[list[str]] = []
    tables: dict[str, list[Mapping[str, Any]]] = {}
    for name, value in values.items():
        if (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and value
            and isinstance(value[0], Mapping)
        ):
            tables[_label(name)] = list(value)
        elif value is not None and value != []:
            shown = display(name, value)
            scalars.append([_label(name), screen.state(shown) if screen and is_state(name) else shown])
    out.writelines(table_lines(scalars, widths_of(scalars)))
    for title, rows in tables.items():
        out.write(f"{title}\n")
        texts = [[display(key, cell, now) for key, cell in row.items()] for row in rows]
        out.writelines(table([*map(visible, rows[0])], texts, screen=screen))


# In ms beyond any calendar: a ts of a timestamp oracle, which has its ms in the upper bits.
_ORACLE = 1 << 48


def display(name: str, value: Any, now: int | None = None) -> str:
    """One value as visible text; its name's ending names the unit (`bytes`, `_ts` ms, `_at` µs, `_s`). Times
    are ages where `now` is given."""
    return visible(_display(name, value, now))


def _display(name: str, value: Any, now: int | None = None) -> str:
    from lakebackup.rules.times import format_age, format_ts

    def moment(ms: int) -> str:
        return format_ts(ms) if now is None else format_age(ms, now)

    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if name == "bytes" or name.endswith("_bytes"):
            return human_bytes(value)
        if name == "ts" or name.endswith("_ts"):
            return moment(value if value < _ORACLE else value >> 18)
        if name == "at" or name.endswith("_at"):
            return moment(value // 1000)
        return str(value)
    if isinstance(value, float):
        return f"{value:.2f} s" if name.endswith("_s") else f"{value:g}"
    if isinstance(value, datetime):  # DuckDB's times have no zone: they are UTC
        return moment(round(value.replace(tzinfo=value.tzinfo or UTC).timestamp() * 1000))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_display(key, item, now)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_display(name, item, now) for item in value)
    return str(value)


def _label(name: str) -> str:
    return visible(name.replace("_", " "))
