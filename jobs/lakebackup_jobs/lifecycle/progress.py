"""How a run reports what it does: a line that moves on a terminal, a line a minute in a log, or JSON lines.

Standard output carries only results (with --json: every event). Progress, notes and warnings go to standard
error, so `lakebackup … > file` never mixes the two.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TextIO, TypeAlias, TypedDict, Unpack

from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lakebackup.rules.times import format_age, format_ts
from lakebackup_jobs.lifecycle.progress_text import ProgressText
from lakebackup_jobs.runtime.java.downloads import Download, heard_by
from lakebackup_jobs.runtime.terminal_table import Screen, is_state, screen_of, table, table_lines, widths_of
from lakebackup_jobs.runtime.terminal_text import visible, visible_lines

ResultPrinter: TypeAlias = "Callable[[Mapping[str, Any], TextIO, Screen | None], None]"
_JSON_INTERVAL_S = 1.0
_PATIENCE_S = 2.0
"""A wait that takes longer than this gets a line that moves."""
_LINE_INTERVAL_S = 60.0
"""The interval of lines in a log. So a short run has none, and a run of several hours has some hundred."""
_REFRESHES_PER_S = 4
_LEAST_BAR, _LONGEST_BAR = 10, 40
"""The least and greatest width of the bar after the line, in columns of a terminal."""
JSON_VERSION = 1
"""The `v` of JSON objects that are not rows. It increases when a key is removed or changes its meaning."""


class ReporterOptions(TypedDict, total=False):
    """The options of `Reporter`; see there."""

    wide: bool
    printer: ResultPrinter | None
    clock: Callable[[], float]


class Reporter:
    """The reports of a run, for pipes and logs: results go to `stream`, warnings to `err`. If the work takes
    long, a line of progress goes to `err` every minute.

    Use it in a `with` block. Every count is a total so far, not a step. `wide`: results are shown in full.
    `printer` prints a result as text; the default prints every field. `clock` returns seconds, such as
    `time.monotonic`.
    """

    def __init__(
        self,
        stream: TextIO,
        err: TextIO,
        *,
        wide: bool = False,
        printer: ResultPrinter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._output, self._err, self._wide, self._clock = stream, err, wide, clock
        self._print_result = printer or print_result
        self._progress = ProgressText(clock)
        self._line_due = 0.0
        self._stack = ExitStack()

    def wait(self, reason: str) -> None:
        """Show what the run waits for, until there is progress or output. Costs next to nothing."""

    def start(
        self, total: int | None, total_bytes: int | None, title: str = "", unit: str = "records"
    ) -> None:
        """Begin a stage of the work. `total` and `total_bytes`: None if unknown. `stage`: its name. `unit`:
        what is counted beside bytes, in the plural; "" if only bytes are counted."""
        self._progress.start(total, total_bytes, title, unit)
        self._line_due = self._clock() + _LINE_INTERVAL_S

    def update(self, finished: int, done_bytes: int) -> None:
        """Report how much of the stage is done."""
        self._progress.update(finished, done_bytes)
        self._write_due_line()

    def download(self, state: Download | None) -> None:
        """Report the state of a download that the run waits for; None: it has ended. Any thread may call
        this."""
        if state is not None and not self._progress.is_downloading:
            self._line_due = self._clock()
        self._progress.download(state)
        self._write_due_line()

    def clear(self) -> None:
        """Remove the line that moves, before output that does not go through the reporter."""

    def note(self, text: str) -> None:
        """Report something for a user who watches; a pipe or log does not get it."""

    def warning(self, text: str) -> None:
        """Report something that must be known even when nobody watches."""
        print(f"warning: {visible_lines(text)}", file=self._err, flush=True)

    def result(self, values: Mapping[str, Any]) -> None:
        """Report the result of the run: scalars, and lists of mappings, which become tables."""
        with reader_may_leave(self._output):
            self._print_result(values, self._output, screen_of(self._output, wide=self._wide))
            self._output.flush()

    def __enter__(self) -> Self:
        self._stack.enter_context(heard_by(self.download))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _write_due_line(self) -> None:
        """Write a line of progress if it is due. A run without an end, such as a service, gets none."""
        if self._clock() >= self._line_due and self._progress.has_total:
            self._line_due = self._clock() + _LINE_INTERVAL_S
            print(self._progress.text(), file=self._err, flush=True)


class JsonReporter(Reporter):
    """Writes JSON lines to `stream`, each an object with `event`; progress at most once a second."""

    def __init__(self, stream: TextIO, err: TextIO) -> None:
        super().__init__(stream, err)
        self._stage = self._download = _JsonStage({}, 0.0)

    def start(
        self, total: int | None, total_bytes: int | None, title: str = "", unit: str = "records"
    ) -> None:
        stage = {"stage": title, "unit": unit, "total": total, "total_bytes": total_bytes}
        self._stage = _JsonStage(stage, self._clock())
        self._emit("start", stage)

    def update(self, finished: int, done_bytes: int) -> None:
        self._emit_due(self._stage, finished, done_bytes)

    def download(self, state: Download | None) -> None:
        if state is not None:
            if not self._progress.is_downloading:
                totals = {"total": state.total_files, "total_bytes": state.total_bytes}
                self._download = _JsonStage({"stage": "download", "unit": "files", **totals}, self._clock())
                self._emit("start", self._download.values | {"name": state.name})
            self._download.values["name"] = state.name
            self._emit_due(self._download, state.files, state.bytes)
        self._progress.download(state)

    def note(self, text: str) -> None:
        self._emit("note", {"message": text})

    def warning(self, text: str) -> None:
        self._emit("warning", {"message": text})

    def result(self, values: Mapping[str, Any]) -> None:
        self._emit("result", values)

    def _emit_due(self, stage: _JsonStage, count: int, size: int) -> None:
        time_s = self._clock()
        if time_s - stage.last >= _JSON_INTERVAL_S:
            stage.last = time_s
            so_far = {"done": count, "bytes": size, "elapsed_s": round(time_s - stage.since, 3)}
            self._emit("progress", stage.values | so_far)

    def _emit(self, event: str, values: Mapping[str, Any]) -> None:
        # A single write for each line, because progress comes from another thread.
        with reader_may_leave(self._output):
            self._output.write(f"{event_line(event, values)}\n")
            self._output.flush()


@dataclass(slots=True)
class _JsonStage:
    """A stage as events report it: the values in all of its events, when it began, and when its progress was
    last reported (in s of the clock)."""

    values: dict[str, Any]
    since: float
    last: float = -_JSON_INTERVAL_S


class TerminalReporter(Reporter):
    """Shows the progress as a line on the terminal `err`, which Rich draws. Rich is loaded for the first
    stage, download or long wait."""

    def __init__(self, stream: TextIO, err: TextIO, **options: Unpack[ReporterOptions]) -> None:
        super().__init__(stream, err, **options)
        self._lock = threading.RLock()
        self._rich_console: Console | None = None
        self._live: Live | None = None
        self._timer: threading.Timer | None = None

    def wait(self, reason: str) -> None:
        with self._lock:
            self._progress.wait(reason)
            if self._live is not None:
                self._live.refresh()
                return
            self._erase()
            if os.environ.get("TERM") != "dumb":
                self._err.write(f"\x1b[2m{visible(reason)} …\x1b[0m")
                self._err.flush()
            self._timer = threading.Timer(_PATIENCE_S, self._still_waits)
            self._timer.daemon = True
            self._timer.start()

    def start(
        self, total: int | None, total_bytes: int | None, title: str = "", unit: str = "records"
    ) -> None:
        with self._lock:
            super().start(total, total_bytes, title, unit)
            self._draw()

    def update(self, finished: int, done_bytes: int) -> None:
        self._progress.update(finished, done_bytes)  # Rich redraws the line several times a second

    def download(self, state: Download | None) -> None:
        with self._lock:
            self._progress.download(state)
            if state is not None:
                self._draw()

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
            if self._live is not None:
                self._live.stop()
                self._live = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.clear()

    def _still_waits(self) -> None:
        with self._lock:
            if self._timer is threading.current_thread():
                self._draw()

    def _erase(self) -> None:
        """Erase the line that says what the run waits for."""
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
        if self._rich_console is None:
            self._rich_console = Console(file=self._err)
        return self._rich_console

    def _draw(self) -> None:
        """Show the line now, and start its regular updates."""
        if self._live is None:
            self._live = Live(
                get_renderable=self._line,
                console=self._console,
                transient=True,
                refresh_per_second=_REFRESHES_PER_S,
                redirect_stdout=False,
            )
            self._live.start()
        self._live.refresh()

    def _line(self) -> RenderableType:
        """The line, followed by a bar if there is room for one."""
        width = self._rich_console.width if self._rich_console else _LONGEST_BAR
        text = Text(self._progress.text(width), no_wrap=True, overflow="crop")
        room, share = width - text.cell_len - 2, self._progress.share
        if share is None or room < _LEAST_BAR:
            return text
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row(text, ProgressBar(1.0, share, width=min(room, _LONGEST_BAR)))
        return line


def reporter(
    *,
    as_json: bool,
    wide: bool = False,
    stream: TextIO | None = None,
    err: TextIO | None = None,
    printer: ResultPrinter | None = None,
) -> Reporter:
    """The right reporter for these streams (by default standard output and error). `printer`: see
    `Reporter`."""
    stream, err = stream or sys.stdout, err or sys.stderr
    if as_json:
        return JsonReporter(stream, err)
    return (TerminalReporter if err.isatty() else Reporter)(stream, err, wide=wide, printer=printer)


@contextmanager
def reader_may_leave(stream: TextIO | None = None) -> Iterator[None]:
    """End the block without an error when the reader of the output (by default standard output) is gone."""
    stream = stream or sys.stdout
    try:
        yield
    except BrokenPipeError:
        # Python flushes the stream again at its exit; this must not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def event_line(event: str, values: Mapping[str, Any]) -> str:
    """An event as one line of JSON, without a line end."""
    return json.dumps({"event": event, "v": JSON_VERSION, **values}, default=str)


def human_bytes(size: int) -> str:
    """`size` bytes with a unit, such as `1.5 MB` (decimal units, as disks and networks are sold)."""
    return decimal(size)


def print_result(values: Mapping[str, Any], stream: TextIO, screen: Screen | None = None) -> None:
    """Print a result as text: one line for each scalar, and a table for each list of mappings that fits the
    `screen`."""
    present_ms = time.time_ns() // 1_000_000 if screen and screen.width is not None else None
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
            text = display(name, value)
            scalars.append([_label(name), screen.state(text) if screen and is_state(name) else text])
    stream.writelines(table_lines(scalars, widths_of(scalars)))
    for title, rows in tables.items():
        stream.write(f"{title}\n")
        texts = [[display(key, cell, present_ms) for key, cell in row.items()] for row in rows]
        stream.writelines(table([*map(visible, rows[0])], texts, screen=screen))


# As ms, values from here on are beyond any calendar. They are ts of a timestamp oracle, with the ms in the
# upper bits.
_ORACLE = 1 << 48


def display(name: str, value: Any, now_ms: int | None = None) -> str:
    """One value as visible text. The ending of its name determines the unit (`bytes`, `_ts` ms, `_at` µs,
    `_s`). With `now_ms` (ms), times are shown as ages."""
    return visible(_display(name, value, now_ms))


def _display(name: str, value: Any, present_ms: int | None = None) -> str:
    def moment(ms: int) -> str:
        return format_ts(ms) if present_ms is None else format_age(ms, present_ms)

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
        return ", ".join(f"{key}={_display(key, item, present_ms)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_display(name, item, present_ms) for item in value)
    return str(value)


def _label(name: str) -> str:
    return visible(name.replace("_", " "))
