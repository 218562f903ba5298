"""What the shell does with statements and with commands of its own; it knows of no terminal's keys."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeVar, cast, get_args

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.output.rows import write
from lakebackup_jobs.cli.shell.statements import is_command, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self

    import pyarrow as pa

    from lakebackup_jobs.connection import Connection
    from lakebackup_jobs.query.answer import Answer

T = TypeVar("T")
Mode = Literal["table", "wide", "vertical", "csv", "json"]

HELP = """\
A statement ends with a semicolon, and may have several lines. Commands:
  .tables            the relations, and what their rows are
  .schema [TABLE]    the columns of a relation, or of all
  .mode MODE         table (fits the screen), wide (in full), vertical (a line a column), csv or json
  .timing on|off     say after each answer how many rows it has and how long it took
  .pager on|off      show long answers page by page, with $PAGER
  .help              this text
  .quit              leave, as Ctrl-D does
Ctrl-C stops the statement that runs. Tab completes names, functions and ids of backups."""
COMMANDS = tuple(line.split()[0] for line in HELP.splitlines() if line.startswith("  ."))


class Left(Exception):
    """Somebody leaves the shell."""


class Shell:
    """Runs statements one after another on a connection. `said`: called with each answer once its rows are
    out."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout: str,
        mode: Mode = "table",
        interactive: bool = False,
        said: Callable[[Answer], object] = lambda _: None,
    ) -> None:
        self.connection, self.mode = connection, mode
        self._timeout, self._said = timeout, said
        self.timing = self.pager = interactive
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="statement")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self._thread.shutdown(wait=False)

    def read(self, lines: Iterable[str]) -> None:
        """Run what is on some lines, such as those of standard input; the last statement needs no semicolon.

        Ends at the first error, which it raises.
        """
        waiting = ""
        with suppress(Left):
            for line in lines:
                if not waiting.strip() and is_command(line):
                    self.run(line)
                    continue
                waiting += line
                if any(sign in line for sign in (";", "--", "*/")):  # a comment alone is no statement
                    statements, waiting = split(waiting)
                    for statement in statements:
                        self._answer(statement)
            self.run(waiting)

    def run(self, text: str) -> None:
        """Run a command, or statements. Raises what they raise, and Left when somebody leaves."""
        if is_command(text):
            self._command(*text.split())
            return
        statements, rest = split(text)
        for statement in [*statements, *([rest] if rest else [])]:
            self._answer(statement)

    def _answer(self, statement: str) -> None:
        began = time.monotonic()
        answer = self._stoppable(lambda: self.connection.sql(statement, timeout=self._timeout))
        count = self._write(answer.batches())
        self._said(answer)
        if self.timing:
            rows = "1 row" if count == 1 else f"{count:,} rows"
            typer.secho(f"{rows} in {time.monotonic() - began:.3f} s", dim=True, err=True)

    def _write(self, rows: pa.RecordBatchReader) -> int:
        """Write rows as the mode says; returns how many were written."""
        import pyarrow as pa

        count = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal count
            while (batch := self._stoppable(lambda: next(rows, None))) is not None:
                count += batch.num_rows
                yield batch

        found = pa.RecordBatchReader.from_batches(rows.schema, counted())
        write(
            found,
            as_json=self.mode == "json",
            as_csv=self.mode == "csv",
            vertical=self.mode == "vertical",
            wide=self.mode == "wide",
            pages=self.pager,
        )
        return count

    def _stoppable(self, work: Callable[[], T]) -> T:
        """What `work` returns. It runs in a thread: the engine's own code would not see Ctrl-C."""
        future = self._thread.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            while not future.done():  # it may have been about to start
                self.connection.interrupt()
                wait([future], 0.1)
            raise

    def _command(self, name: str, *words: str) -> None:
        taken = {
            ".tables": (self._tables, 0), ".schema": (self._schema, 1), ".mode": (self._mode, 1),
            ".timing": (self._timing, 1), ".pager": (self._pager, 1), ".help": (self._help, 0),
            ".quit": (self._quit, 0),
        }  # fmt: skip
        method, most = taken.get(name, (None, 0))
        if method is None:
            raise UsageProblem(f"There is no command {name}.", hint="`.help` shows all.")
        if len(words) > most:
            raise UsageProblem(f"{name} takes no {words[most]!r}.", hint="`.help` shows how it is used.")
        method(*words)

    def _tables(self) -> None:
        from lakebackup.reference import describe
        from lakebackup.sql_engine import shown_views
        from lakebackup_sql import load

        texts = {view: describe(load("views", view)).text for view in shown_views()}
        rows = {**texts, "records('TOPIC')": "The records of a topic, inside the backups."}
        self._list([{"table": name, "rows": text} for name, text in rows.items()])

    def _schema(self, table: str = "") -> None:
        from lakebackup.reference import meanings
        from lakebackup.sql_engine import shown_views
        from lakebackup.sql_engine.duck import SPARK_NAMES, view_types

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
        import pyarrow as pa

        self._write(pa.Table.from_pylist(rows).to_reader())

    def _mode(self, mode: str = "") -> None:
        if mode not in get_args(Mode):
            wrong = f"There is no mode {mode!r}." if mode else ".mode: which mode?"
            raise UsageProblem(wrong, hint=f"Modes: {', '.join(get_args(Mode))}.")
        self.mode = cast("Mode", mode)

    def _timing(self, word: str = "") -> None:
        self.timing = _is_on(word)

    def _pager(self, word: str = "") -> None:
        self.pager = _is_on(word)

    def _help(self) -> None:
        typer.echo(HELP)

    def _quit(self) -> None:
        raise Left


def _is_on(word: str) -> bool:
    if word not in ("on", "off"):
        raise UsageProblem(f"{word!r} is neither on nor off.", hint="Example: .timing on")
    return word == "on"
