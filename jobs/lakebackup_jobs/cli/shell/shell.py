"""The shell: it runs SQL statements and its own commands, from any source of text."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from pathlib import Path
from typing import Self, TextIO, TypeVar, cast, get_args

import pyarrow as pa
import typer

from lakebackup.errors import EnvironmentProblem, LakebackupError, NotFound, UsageProblem
from lakebackup.reference import describe, meanings
from lakebackup.sql_engine import shown_views
from lakebackup.sql_engine.duck import SPARK_NAMES, view_types
from lakebackup_jobs.cli.output.pager import paged
from lakebackup_jobs.cli.output.rows import Mode, write
from lakebackup_jobs.cli.shell.statements import bare_command, is_command, split
from lakebackup_jobs.connection import Connection
from lakebackup_jobs.query.answer import Answer
from lakebackup_jobs.runtime.terminal_table import screen_of, wrapped_table
from lakebackup_jobs.runtime.terminal_text import visible
from lakebackup_sql import load

T = TypeVar("T")
_WAIT_S = 0.1

HELP = """\
A statement ends with a semicolon, and may have several lines. Commands:
  .tables            the relations, and what their rows are
  .schema [TABLE]    the columns of a relation, or of all
  .mode MODE         table (fits the screen), wide (in full), vertical (a line a column), csv, json or
                     agent (Markdown with types)
  .read FILE         run the statements and commands in a file
  .output [FILE]     write results to a file; without FILE, to the terminal again
  .timing on|off     say after each answer how many rows it has and how long it took
  .pager on|off      show long answers page by page, with $PAGER
  .help, help        this text
  .quit, quit, exit  leave, as Ctrl-D does
Ctrl-C stops the statement that runs. Tab completes names, functions and ids of backups."""
COMMANDS = tuple(line.split()[0].rstrip(",") for line in HELP.splitlines() if line.startswith("  ."))


class Quit(Exception):
    """The user leaves the shell."""


class Shell:
    """Runs statements one after another on a connection.

    `on_answer` is called with each answer after its rows were written.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        timeout: str,
        mode: Mode = "table",
        interactive: bool = False,
        on_answer: Callable[[Answer], object] = lambda _: None,
    ) -> None:
        self.connection, self.mode = connection, mode
        self._timeout, self._on_answer = timeout, on_answer
        self.timing = self.pager = interactive
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="statement")
        self._output: TextIO | None = None
        self._files: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(EnvironmentProblem):  # an earlier statement has reported it
            self._set_output()
        self.connection.close()
        self._thread.shutdown(wait=False)

    @property
    def greeting(self) -> str:
        """The first line of an interactive shell."""
        repo = visible(self.connection.repo)
        return f"SQL on the backups at {repo}. help lists the commands, quit leaves."

    def read(self, lines: Iterable[str]) -> None:
        """Run statements and commands from lines, such as those of standard input.

        The last statement needs no semicolon. The first error ends the run and is raised.
        """
        with suppress(Quit):
            self._run_lines(lines)

    def _run_lines(self, lines: Iterable[str]) -> None:
        pending = ""
        for line in lines:
            if not pending.strip() and is_command(line):
                self.run(line)
                continue
            pending += line
            if any(sign in line for sign in (";", "--", "*/")):  # a comment alone is no statement
                statements, pending = split(pending)
                for statement in statements:
                    self._answer(statement)
        self.run(pending)

    def run(self, text: str) -> None:
        """Run a command or statements. Raises their errors, and Quit when the user leaves."""
        if is_command(text):
            self._command(*_words(bare_command(text) or text))
            return
        statements, unfinished = split(text)
        for statement in [*statements, *([unfinished] if unfinished else [])]:
            self._answer(statement)

    def _answer(self, statement: str) -> None:
        start_s = time.monotonic()
        answer = self._stoppable(lambda: self.connection.sql(statement, timeout=self._timeout))
        count = self._write(answer.batches())
        self._on_answer(answer)
        if self.timing:
            rows = "1 row" if count == 1 else f"{count:,} rows"
            typer.secho(f"{rows} in {time.monotonic() - start_s:.3f} s", dim=True, err=True)

    def _write(self, rows: pa.RecordBatchReader) -> int:
        """Write rows in the current mode, and return their number."""
        count = 0

        def counted_batches() -> Iterator[pa.RecordBatch]:
            nonlocal count
            while (batch := self._stoppable(lambda: next(rows, None))) is not None:
                count += batch.num_rows
                yield batch

        with redirect_stdout(self._output) if self._output else nullcontext(), self._disk_errors():
            write(
                pa.RecordBatchReader.from_batches(rows.schema, counted_batches()),
                mode=self.mode,
                pages=self.pager,
            )
        return count

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Report an error of the file of `.output` as an EnvironmentProblem, and close the file."""
        try:
            yield
        except OSError as error:
            output, self._output = self._output, None
            if output is None:
                raise
            with suppress(OSError):
                output.close()  # which tries once more to write the buffered rows
            raise EnvironmentProblem(
                f"{output.name}: {error.strerror or error}.",
                hint="Results go to the terminal again. Name another file with .output FILE.",
            ) from error

    def _stoppable(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result, because the engine's own code does not see Ctrl-C."""
        future = self._thread.submit(work)
        try:
            while not future.done():  # one wait without an end would miss a Ctrl-C that comes just before it
                wait([future], _WAIT_S)
            return future.result()
        except KeyboardInterrupt:
            while not future.done():  # the query may not have started yet, so one interrupt may not be enough
                self.connection.interrupt()
                wait([future], _WAIT_S)
            raise

    def _command(self, name: str, *words: str) -> None:
        commands = {
            ".tables": (self._tables, 0), ".schema": (self._schema, 1), ".mode": (self._mode, 1),
            ".timing": (self._timing, 1), ".pager": (self._pager, 1), ".help": (self._help, 0),
            ".quit": (self._quit, 0), ".read": (self._run_file, 1), ".output": (self._set_output, 1),
        }  # fmt: skip
        method, max_words = commands.get(name, (None, 0))
        if method is None:
            raise UsageProblem(f"There is no command {name}.", hint="`.help` shows all.")
        if len(words) > max_words:
            raise UsageProblem(f"{name} takes no {words[max_words]!r}.", hint="`.help` shows how it is used.")
        method(*words)

    def _tables(self) -> None:
        texts = {view: describe(load("views", view)).text for view in shown_views()}
        rows = {**texts, "records('TOPIC')": "The records of a topic, inside the backups."}
        self._list([{"table": name, "rows": text} for name, text in rows.items()])

    def _schema(self, table: str = "") -> None:
        if table and table not in shown_views():
            raise UsageProblem(f"There is no table {table}.", hint="`.tables` shows all.")
        self._list(
            [
                {
                    "table": view,
                    "column": column,
                    "type": SPARK_NAMES.get(kind, kind),
                    "meaning": meanings(view).get(column, ""),
                }
                for view in ([table] if table else shown_views())
                for column, kind in view_types(view).items()
            ]
        )

    def _list(self, rows: list[dict[str, str]]) -> None:
        """Write rows of names whose last column is their meaning. A terminal wraps that column to fit."""
        screen = screen_of(sys.stdout)
        if screen and screen.width and self.mode == "table" and self._output is None:
            with paged() if self.pager else nullcontext():
                texts = [[*map(visible, row.values())] for row in rows]
                sys.stdout.writelines(wrapped_table([*rows[0]], texts, screen))
        else:
            self._write(pa.Table.from_pylist(rows).to_reader())

    def _run_file(self, name: str = "") -> None:
        if not name:
            raise UsageProblem(".read: which file?", hint="Example: .read questions.sql")
        path = Path(name).expanduser().resolve()
        if path in self._files:
            raise UsageProblem(f"{name} reads itself.", hint=f"Remove `.read {name}` from it.")
        number = 0

        def numbered(lines: Iterable[str]) -> Iterator[str]:
            nonlocal number
            for number, line in enumerate(lines, 1):  # noqa: B007
                yield line

        self._files.append(path)
        try:
            with path.open(encoding="utf-8") as file:
                self._run_lines(numbered(file))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no text"
            raise NotFound(
                f"{name} cannot be read: {reason}.", hint="Name a file of SQL statements."
            ) from error
        except LakebackupError as error:
            error.message = f"{name}, line {number}: {error.message}"
            raise
        finally:
            self._files.pop()

    def _set_output(self, name: str = "") -> None:
        if self._output:
            with self._disk_errors():
                self._output.close()
            self._output = None
        if name:
            try:
                self._output = Path(name).expanduser().open("w", encoding="utf-8", newline="")
            except OSError as error:
                raise EnvironmentProblem(
                    f"{name} cannot be written: {error.strerror or error}.", hint="Name another file."
                ) from error

    def _mode(self, mode: str = "") -> None:
        if mode not in get_args(Mode):
            message = f"There is no mode {mode!r}." if mode else ".mode: which mode?"
            raise UsageProblem(message, hint=f"Modes: {', '.join(get_args(Mode))}.")
        self.mode = cast("Mode", mode)

    def _timing(self, word: str = "") -> None:
        self.timing = _is_on(word)

    def _pager(self, word: str = "") -> None:
        self.pager = _is_on(word)

    def _help(self) -> None:
        typer.echo(HELP)

    def _quit(self) -> None:
        raise Quit


def _words(command: str) -> list[str]:
    """The words of a command. A file name with blanks may be quoted."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UsageProblem(f"{command.strip()}: a quote is not closed.", hint="Close it.") from error


def _is_on(word: str) -> bool:
    if word not in ("on", "off"):
        raise UsageProblem(f"{word!r} is neither on nor off.", hint="Example: .timing on")
    return word == "on"
