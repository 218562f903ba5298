"""What Spark raises, as errors of this program's own kinds."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebackup import errors
from lakebackup.errors import Damaged, EnvironmentProblem, LakebackupError, TooLarge
from lakebackup.sql_engine.guard.place import of_engine
from lakebackup.storage import s3a

if TYPE_CHECKING:
    from collections.abc import Iterator

# How Spark reports a damaged file of the catalog.
_TORN = re.compile(
    r"(?:Checksum error|CRC checksum|FAILED_READ_FILE|[^\n]*is not a Parquet file)[^\n]{0,300}"
)
_DIED = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure")
# A text, a list or a recursion that the JVM has no room for.
_TOO_LARGE = re.compile(
    r"OutOfMemoryError|OUT_OF_MEMORY|StackOverflowError|COLLECTION_SIZE_LIMIT_EXCEEDED|NegativeArraySize"
    r"|exceed(?:s|ing|ed)? the array size limit|maxResultSize|KRYO_BUFFER_OVERFLOW"
)
# What lies at the bottom of a Java exception's text.
_CAUSE = re.compile(r"^(?:: |Caused by: )[\w.$]+: (.+)$", re.MULTILINE)
# How a Python traceback within it ends: with the first line that is not indented, and those that continue it.
_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ ]+[^\n]*\n)+"
    r"(\S[^\n]*(?:\n(?!\s+at |\s*\n|Caused by: |Traceback )[^\n]+)*)"
)
_CAUSE_LENGTH = 2000
_LONG_LINE = re.compile(r"([^\n]{2000})[^\n]+")
_OURS = re.compile(r"lakebackup\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def task_errors() -> Iterator[None]:
    """Around what makes Spark run tasks: their expected failures come out with their own type."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = text_of(error)
        if _DIED.search(text):
            raise EnvironmentProblem(
                "A Spark worker died in the middle of its task: killed, or out of memory.",
                hint="Nothing of this run is visible. Run it again; `dmesg` shows whether memory ran out.",
            ) from None
        if found := error_in(error):
            raise found from None
        if problem := s3a.problem_in(text):  # before a file that cannot be read is taken for a damaged one
            raise problem from error
        if torn := _TORN.search(text):
            raise damaged_table("the catalog", torn[0]) from None
        raise


@contextmanager
def select_errors(sql: str) -> Iterator[None]:
    """Around what a person's SELECT makes Spark do: as `task_errors`, and what Spark has against it comes out
    as UsageProblem with its place in `sql`, or as TooLarge. Python has no time after the year 9999."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        with _unlogged(), task_errors():
            yield
    except (PySparkException, Py4JJavaError, ValueError, OverflowError) as error:
        text = text_of(error)
        if _TOO_LARGE.search(text):
            raise TooLarge(
                "The query needs more memory than Spark has.",
                hint="Ask for fewer rows or columns, or give Spark more: spark.driver.memory.",
            ) from error
        causes = _CAUSE.findall(text)
        raise of_engine(sql, causes[-1] if causes else text) from error


@contextmanager
def _unlogged() -> Iterator[None]:
    """Without the log of PySpark, which writes each error, with the whole plan, to standard error."""
    from pyspark.logger import PySparkLogger

    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def passed_on(error: LakebackupError) -> OSError:
    """An error in a form that passes through other libraries, for `error_in` to find."""
    return OSError(f"lakebackup.errors.{type(error).__name__}: {error.message}")


def text_of(error: BaseException) -> str:
    """What an error says, without the ends of very long lines: one may quote a text of megabytes, in which
    patterns would be looked for from every place to the end."""
    return _LONG_LINE.sub(r"\1", str(error))


def cause_in(error: BaseException) -> str:
    """The error at the bottom of a Java exception's text: the last one of Python in it, else the last cause
    of Java, else the beginning of the text."""
    text = text_of(error)
    causes = [end.strip() for end in _TRACEBACK.findall(text)] or _CAUSE.findall(text)
    return (causes[-1] if causes else text)[:_CAUSE_LENGTH]


def error_in(error: BaseException) -> LakebackupError | None:
    """The error of this program that caused another library's; None when there is none."""
    found = _OURS.search(text_of(error))
    if found is None:
        return None
    kind: type[LakebackupError] = getattr(errors, found[1], LakebackupError)
    return kind(found[2])


def damaged_table(where: str, what: object) -> LakebackupError:
    """The error for a table of the catalog whose files are damaged, or that could not be read at all."""
    found = error_in(what) if isinstance(what, BaseException) else None
    return found or damaged_catalog(f"A table of {where} is damaged: {what}")


def damaged_catalog(message: str) -> Damaged:
    """The error for a catalog that has to be rebuilt."""
    return Damaged(
        message,
        hint="The backups themselves may be whole: move the catalog away and run "
        "`lakebackup catalog rebuild`.",
    )
