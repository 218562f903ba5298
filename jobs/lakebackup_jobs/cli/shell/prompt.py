"""The shell's prompt on a terminal: keys, history, colours, completion."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FrameType
from typing import Any, get_args

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from lakebackup.errors import LakebackupError
from lakebackup.sql_engine import shown_views
from lakebackup.sql_engine.duck import view_types
from lakebackup.sql_engine.guard.allowed import SPARK
from lakebackup.storage.private import state_folder
from lakebackup_jobs.cli.output.errors import report
from lakebackup_jobs.cli.output.rows import Mode
from lakebackup_jobs.cli.shell.shell import COMMANDS, Quit, Shell
from lakebackup_jobs.cli.shell.statements import is_command, is_whole
from lakebackup_jobs.connection import Connection

_KEYWORDS = (
    "select", "from", "where", "group by", "order by", "having", "limit", "join", "left join", "on", "with",
    "as", "and", "or", "not", "in", "is null", "is not null", "like", "between", "case", "when", "then",
    "else", "end", "distinct", "union all", "desc", "over", "partition by",
)  # fmt: skip
_ARGUMENTS = {".mode": get_args(Mode), ".timing": ("on", "off"), ".pager": ("on", "off")}
_RELATION = re.compile(r"\b(?:from|join|describe)\s+\w*$", re.IGNORECASE)
_TOPIC = re.compile(r"records\(\s*'([^']*)$", re.IGNORECASE)
_TEXT = re.compile(r"'([^']*)$")
_WORD = re.compile(r"\w*$")
_FILE = re.compile(r"\s*\.(?:read|output)\s+(.*)")


def interact(shell: Shell) -> None:
    """Run the statements that a person types, until the person leaves. An error ends only its statement."""
    prompt: PromptSession[str] = PromptSession(
        "lakebackup> ",
        history=_history(),
        lexer=PygmentsLexer(SqlLexer),
        completer=Names(shell.connection),
        complete_in_thread=True,
        complete_while_typing=False,
        multiline=Condition(lambda: not is_whole(get_app().current_buffer.text)),
        prompt_continuation="        ... ",
    )
    typer.echo(shell.greeting)
    with _every_interrupt_raises():
        while True:
            try:
                # The prompt's own handler would swallow a Ctrl-C between the prompt's end and the statement.
                shell.run(prompt.prompt(handle_sigint=False))
            except KeyboardInterrupt:
                typer.secho("Cancelled.", dim=True, err=True)
            except (EOFError, Quit):
                return
            except LakebackupError as error:
                report(error, as_json=False)


class Names(Completer):
    """Completes the word before the cursor."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,
    ) -> Iterable[Completion]:
        text_before_cursor = document.text_before_cursor
        if file := _FILE.fullmatch(text_before_cursor):
            path = Document(file[1], len(file[1]))
            yield from PathCompleter(expanduser=True).get_completions(path, complete_event)
            return
        word, names = self._names(text_before_cursor, document.text)
        for name in names:
            if name.lower().startswith(word.lower()):
                yield Completion(name, -len(word))

    def _names(self, text_before_cursor: str, text: str) -> tuple[str, Iterable[str]]:
        """The typed part of the last word, and the names that can complete it."""
        if is_command(text_before_cursor):
            name, *words = text_before_cursor.split(" ")
            return (words[-1], self._arguments(name)) if words else (name.lstrip(), COMMANDS)
        if text_before_cursor.count("'") % 2:
            if topic := _TOPIC.search(text_before_cursor):
                return topic[1], self._topics()
            beginning = _TEXT.search(text_before_cursor)
            word = beginning[1] if beginning else ""
            return word, self._ids(word)
        match = _WORD.search(text_before_cursor)
        word = match[0] if match else ""
        if _RELATION.search(text_before_cursor):
            return word, [*_views(), "records("]
        return word, [*_columns(text), *_functions(), *_views(), *_KEYWORDS]

    def _arguments(self, command: str) -> Iterable[str]:
        return _views() if command == ".schema" else _ARGUMENTS.get(command, ())

    def _ids(self, beginning: str) -> list[str]:
        with suppress(LakebackupError):
            rows = self._connection.catalog().rows("find_backups", prefix=beginning)
            return [str(row["backup_id"]) for row in rows]
        return []

    def _topics(self) -> list[str]:
        with suppress(LakebackupError):
            return [
                str(row["scope"]) for row in self._connection.sql("SELECT DISTINCT scope FROM rpo ORDER BY 1")
            ]
        return []


def _views() -> tuple[str, ...]:
    return shown_views()


@cache
def _functions() -> tuple[str, ...]:
    return tuple(sorted(SPARK))


def _columns(text: str) -> list[str]:
    """The columns of the views that a text names."""
    words_in_text = set(re.findall(r"\w+", text.lower()))
    return list(
        dict.fromkeys(column for view in _views() if view in words_in_text for column in view_types(view))
    )


def _history() -> History:
    """The history of statements, in a file of the user's state folder that only the user can read.

    It is in memory when there can be no such file.
    """
    folder = state_folder()
    if folder is None:
        return InMemoryHistory()
    path = folder / "sql_history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def _raise_interrupt(*_: object) -> None:
    """Raise KeyboardInterrupt. While the prompt runs, asyncio would replace Python's own handler, which does
    this too, by one that loses a Ctrl-C at the prompt's end."""
    raise KeyboardInterrupt


@contextmanager
def _every_interrupt_raises() -> Iterator[None]:
    """Within the block, every Ctrl-C ends a statement. The command's own handler would end the process at the
    second one. SIGTERM and SIGHUP end the shell, which holds no lease."""
    handlers: dict[int, Callable[[int, FrameType | None], Any] | signal.Handlers] = {
        signal.SIGINT: _raise_interrupt,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    old_handlers = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
