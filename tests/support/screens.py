"""Pictures of commands' output on a terminal. `python -m tests.support.screens` draws those of the docs.

Real commands run in this process over backups made by hand, at a fixed time; Rich draws their output. For the
shell, the picture shows prompt_toolkit's own copy of the screen.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from unittest import mock

from prompt_toolkit.application import create_app_session, get_app
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console
from rich.style import Style
from rich.text import Text
from tests.support.made_backups import MadeBackups, Record

import lakebackup
from lakebackup.rules import layout
from lakebackup_jobs.cli import main
from lakebackup_jobs.cli.shell.prompt import Names, interact
from lakebackup_jobs.cli.shell.shell import Shell
from lakebackup_jobs.lifecycle import progress

FOLDER = Path(__file__).parents[2] / "docs" / "screens"
WIDTHS = (80, 120)
NOW_MS = 1_795_269_900_000
ORDERS = "SELECT kafka_offset, time, key, value FROM records('orders') WHERE key = 'customer-7' ORDER BY time"
COMMANDS: dict[str, list[str]] = {
    "list": ["list"],
    "show": ["show", "latest"],
    "sql": ["sql", ORDERS],
    "record": ["sql", "SELECT * FROM restore_points ORDER BY number DESC LIMIT 1"],
    "error": ["sql", "SELECT source, bites FROM files WHERE scope = 'orders'"],
    "restore": ["restore", "topics", "orders", "--to", "delta:./orders", "--to-time", "-3m", "--dry-run"],
}
NAMES = (*COMMANDS, "shell")
FIRST = "SELECT scope, sum(bytes) AS bytes FROM files GROUP BY scope;"
NEXT = "SELECT backup_id FROM backups WHERE sta"
# Loads the font from another server; pictures must not.
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_ROOT = '{"format": 1, "destination": "8bd00186ddc542dc"}'
_PROGRESS_LINE = re.compile(r"[^\n]*\r\x1b\[K")


class Terminal(io.StringIO):
    """A stream that claims to be a terminal and collects what is written to it."""

    def isatty(self) -> bool:
        return True


@contextmanager
def backups() -> Iterator[None]:
    """A working directory in which `./backups` has a full and two differential backups of two topics."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        Path("backups").mkdir()
        Path("backups", layout.ROOT_FILE).write_text(_ROOT, "utf-8")
        repository = MadeBackups(Path("backups").absolute())
        for number, minutes in enumerate((125, 62, 2)):
            first_number = 40 * number
            ts = NOW_MS - 60_000 * minutes
            repository.backup(
                [
                    [_order(first_number + n, ts - 1000 * (40 - n), partition) for n in range(40)]
                    for partition in (0, 1)
                ],
                end_ts=ts,
            )
        repository.change("backups", lambda row: replace(row, started_at=row.finished_at - 4_000_000))
        repository.flush()
        yield


def _order(number: int, ts: int, partition: int) -> Record:
    customer = f"customer-{(2 * number + partition) % 30}"
    value = f'{{"order":{2 * number + partition},"state":"paid","amount":{7 * number}}}'
    return Record(partition, number, ts, customer.encode(), value.encode())


def screen(name: str, width: int) -> str:
    """The SVG of one picture. Call it inside `backups()`."""
    settings = {
        "COLUMNS": str(width), "LINES": "40", "TERM": "xterm-256color", "PAGER": "", "NO_COLOR": "",
        "LAKEBACKUP_REPO": "./backups", "XDG_STATE_HOME": str(Path("state").absolute()),
    }  # fmt: skip
    terminal = Terminal()
    with (
        mock.patch.dict(os.environ, settings),
        mock.patch.object(time, "time_ns", return_value=NOW_MS * 1_000_000),
        mock.patch.object(progress, "_PATIENCE_S", 3600.0),  # no bar, however slow this machine is
        redirect_stdout(terminal),
        redirect_stderr(terminal),
    ):
        text = _shell(width, terminal) if name == "shell" else _command(COMMANDS[name], terminal)
    console = Console(
        record=True, width=width, file=io.StringIO(), color_system="truecolor", force_terminal=True
    )
    text.rstrip()
    console.print(text, overflow="fold")
    title = f"lakebackup, {width} columns"
    return _FONT.sub("", console.export_svg(title=title, unique_id=f"{name}-{width}"))


def text_of(svg: str) -> list[str]:
    """The lines of text in a picture."""
    lines: dict[float, str] = {}
    for y, text in re.findall(r'<text class="[^"]*-r\d+"[^>]* y="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        lines[float(y)] = lines.get(float(y), "") + unescape(text)
    return [lines[y] for y in sorted(lines)]


def _command(words: list[str], terminal: Terminal) -> Text:
    main(words)
    printed = _PROGRESS_LINE.sub("", terminal.getvalue()).replace(str(Path.cwd()), "/srv")
    quoted = " ".join(f'"{word}"' if re.search(r"[ *]", word) else word for word in words)
    return Text.from_ansi(f"$ lakebackup {quoted}\n{printed}")


def _shell(width: int, terminal: Terminal) -> Text:
    """A statement, its answer, and the completions that Tab shows for the next one."""
    text, connection = Text(), lakebackup.connect("./backups")
    completion_count = len(list(Names(connection).get_completions(Document(NEXT), CompleteEvent())))

    def typing(keys: PipeInput) -> Iterator[None]:
        """Types as soon as the expected text is on the screen; runs on after each rendering."""
        text.append_text(Text.from_ansi(terminal.getvalue() + "\n"))
        terminal.seek(0)
        terminal.truncate()
        keys.send_text(FIRST)
        while get_app().current_buffer.text != FIRST:
            yield
        text.append_text(_screen_text())
        keys.send_text("\r")
        while get_app().current_buffer.text or not terminal.getvalue():
            yield
        text.append_text(Text.from_ansi(terminal.getvalue() + "\n"))
        keys.send_text(NEXT)
        while get_app().current_buffer.text != NEXT:
            yield
        keys.send_text("\t")
        while (state := get_app().current_buffer.complete_state) is None or len(
            state.completions
        ) < completion_count:
            yield
        while "completion-menu" not in "".join(_row_styles()):
            yield
        text.append_text(_screen_text())
        keys.send_text("\x03\x04")
        while True:
            yield

    with create_pipe_input() as keys:
        steps = typing(keys)
        output = _Output(width, steps)
        with create_app_session(input=keys, output=output), Shell(connection, timeout="1m") as shell:
            interact(shell)
    return text


class _Output(DummyOutput):
    """A terminal that runs a step after each rendering."""

    def __init__(self, width: int, steps: Iterator[None]) -> None:
        self._width, self._steps = width, steps

    def get_size(self) -> Size:
        return Size(rows=40, columns=self._width)

    def flush(self) -> None:
        if get_app().renderer.last_rendered_screen is not None:
            next(self._steps)


def _screen() -> Any:
    return get_app().renderer.last_rendered_screen


def _row_styles() -> Iterator[str]:
    for row in list(_screen().data_buffer.values()):
        yield from (char.style for char in list(row.values()))


def _screen_text() -> Text:
    """The lines of prompt_toolkit's screen, in their colours."""
    text, rows = Text(), _screen().data_buffer
    for y in range(max(rows) + 1):
        line = Text()
        for x in range(max(rows[y], default=-1) + 1):
            line.append(rows[y][x].char, _style(rows[y][x].style))
        text.append_text(line).append("\n")
    text.rstrip()
    return text.append("\n")


def _style(name: str) -> Style:
    attributes = get_app().renderer.style.get_attrs_for_style_str(name)
    colours = [_colour(value) for value in (attributes.color, attributes.bgcolor)]
    return Style(
        color=colours[0], bgcolor=colours[1], bold=attributes.bold or None, reverse=attributes.reverse or None
    )


def _colour(name: str | None) -> str | None:
    """Rich's name of a colour of prompt_toolkit, which is `ansibrightred` or six hex digits."""
    if not name or name == "ansidefault":
        return None
    if name.startswith("ansi"):
        return name.removeprefix("ansi").replace("bright", "bright_").replace("gray", "white")
    return f"#{name}"


def draw() -> None:
    """Draw all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with backups():
        for name in NAMES:
            for width in WIDTHS:
                (FOLDER / f"{name}-{width}.svg").write_text(screen(name, width), "utf-8")


if __name__ == "__main__":
    draw()
