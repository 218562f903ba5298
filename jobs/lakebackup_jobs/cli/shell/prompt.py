"""The shell on a terminal: keys, history, colours, completion."""

from __future__ import annotations

import re
import signal
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from lakebackup.errors import LakebackupError
from lakebackup.storage.private import state_folder
from lakebackup_jobs.cli.output.errors import report
from lakebackup_jobs.cli.shell.shell import COMMANDS, Left, Mode
from lakebackup_jobs.cli.shell.statements import is_command, is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from prompt_toolkit.completion import CompleteEvent

    from lakebackup_jobs.cli.shell.shell import Shell
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
    """Take statements from a person until she leaves. An error ends its statement alone."""
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
                # Its own handler would swallow a Ctrl-C that comes after the text and before the statement.
                shell.run(prompt.prompt(handle_sigint=False))
            except KeyboardInterrupt:
                typer.secho("Cancelled.", dim=True, err=True)
            except (EOFError, Left):
                return
            except LakebackupError as error:
                report(error, as_json=False)


class Names(Completer):
    """What the word before the cursor can become."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        if file := _FILE.fullmatch(before):
            path = Document(file[1], len(file[1]))
            yield from PathCompleter(expanduser=True).get_completions(path, complete_event)
            return
        word, names = self._names(before, document.text)
        for name in names:
            if name.lower().startswith(word.lower()):
                yield Completion(name, -len(word))

    def _names(self, before: str, text: str) -> tuple[str, Iterable[str]]:
        """What was typed of a word, and names that could be meant."""
        if is_command(before):
            name, *words = before.split(" ")
            return (words[-1], self._arguments(name)) if words else (name.lstrip(), COMMANDS)
        if before.count("'") % 2:
            if topic := _TOPIC.search(before):
                return topic[1], self._topics()
            beginning = _TEXT.search(before)
            word = beginning[1] if beginning else ""
            return word, self._ids(word)
        found = _WORD.search(before)
        word = found[0] if found else ""
        if _RELATION.search(before):
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
    from lakebackup.sql_engine import shown_views

    return shown_views()


@cache
def _functions() -> tuple[str, ...]:
    from lakebackup.sql_engine.guard.allowed import SPARK

    return tuple(sorted(SPARK))


def _columns(text: str) -> list[str]:
    """The columns of the relations that a text names."""
    from lakebackup.sql_engine.duck import view_types

    named = set(re.findall(r"\w+", text.lower()))
    return list(dict.fromkeys(column for view in _views() if view in named for column in view_types(view)))


def _history() -> History:
    """What was typed before, in the user's state folder, for the user alone; in memory where that cannot
    be."""
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


@contextmanager
def _every_interrupt_raises() -> Iterator[None]:
    """Ctrl-C ends a statement, however often: the command's own handler would end the process the second
    time. SIGTERM and SIGHUP end the shell, which holds no lease."""
    handlers: dict[int, Callable[[int, FrameType | None], Any] | signal.Handlers] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
