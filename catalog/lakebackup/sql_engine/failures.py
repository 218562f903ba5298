"""Errors of Spark, and of damaged tables, as lakebackup's own errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from lakebackup import errors
from lakebackup.errors import Damaged, EnvironmentProblem, LakebackupError, TooLarge
from lakebackup.sql_engine.guard.place import of_engine
from lakebackup.storage import s3a

# How Spark's message for a damaged file of the catalog reads.
_DAMAGED_FILE = re.compile(
    r"(?:Checksum error|CRC checksum|FAILED_READ_FILE|[^\n]*is not a Parquet file)[^\n]{0,300}"
)
_WORKER_DIED = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure")
# A string, a list or a recursion that is too large for the JVM.
_TOO_LARGE = re.compile(
    r"OutOfMemoryError|OUT_OF_MEMORY|StackOverflowError|COLLECTION_SIZE_LIMIT_EXCEEDED|NegativeArraySize"
    r"|exceed(?:s|ing|ed)? the array size limit|maxResultSize|KRYO_BUFFER_OVERFLOW"
)
# The causes in the text of a Java exception; the last one is the root cause.
_CAUSE = re.compile(r"^(?:: |Caused by: )[\w.$]+: (.+)$", re.MULTILINE)
# A Python traceback in that text. It ends with the first line that is not indented, and the lines that
# continue it.
_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ ]+[^\n]*\n)+"
    r"(\S[^\n]*(?:\n(?!\s+at |\s*\n|Caused by: |Traceback )[^\n]+)*)"
)
_CAUSE_LENGTH = 2000
_LONG_LINE = re.compile(r"([^\n]{2000})[^\n]+")
_OWN_ERROR = re.compile(r"lakebackup\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def task_errors() -> Iterator[None]:
    """Raise the expected failures of Spark tasks, which the block starts, as errors of their own types."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = text_of(error)
        if _WORKER_DIED.search(text):
            raise EnvironmentProblem(
                "A Spark worker died in the middle of its task: killed, or out of memory.",
                hint="Nothing of this run is visible. Run it again; `dmesg` shows whether memory ran out.",
            ) from None
        if own_error := error_in(error):
            raise own_error from None
        if problem := s3a.problem_in(text):  # first: a file that cannot be read may not be damaged
            raise problem from error
        if damage := _DAMAGED_FILE.search(text):
            raise damaged_table("the catalog", damage[0]) from None
        raise


@contextmanager
def select_errors(sql: str) -> Iterator[None]:
    """Like `task_errors`, for a person's SELECT. Other errors of Spark are raised as UsageProblem with the
    place in `sql`, or as TooLarge. So are those of Python, which has no time after the year 9999."""
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
    """Turn off PySpark's log while the block runs: it writes each error, with the whole plan, to standard
    error."""
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    was_disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was_disabled


def passed_on(error: LakebackupError) -> OSError:
    """Wrap an error in an OSError, which passes through other libraries; `error_in` finds it again."""
    return OSError(f"lakebackup.errors.{type(error).__name__}: {error.message}")


def text_of(error: BaseException) -> str:
    """Return an error's text, with very long lines cut: one may quote megabytes, in which a search for a
    pattern takes time that grows with the square of the length."""
    return _LONG_LINE.sub(r"\1", str(error))


def cause_in(error: BaseException) -> str:
    """Return the root cause in the text of a Java exception: the last error of Python in it, else the last
    cause of Java, else the beginning of the text."""
    text = text_of(error)
    causes = [end.strip() for end in _TRACEBACK.findall(text)] or _CAUSE.findall(text)
    return (causes[-1] if causes else text)[:_CAUSE_LENGTH]


def error_in(error: BaseException) -> LakebackupError | None:
    """Return the error of lakebackup that caused another library's error; None when there is none."""
    match = _OWN_ERROR.search(text_of(error))
    if match is None:
        return None
    kind: type[LakebackupError] = getattr(errors, match[1], LakebackupError)
    return kind(match[2])


def damaged_table(location: str, reason: object) -> LakebackupError:
    """Return the error for a table of the catalog at `location` that is damaged or cannot be read. `reason`:
    the error that a reader raised, or the reason as text."""
    own_error = error_in(reason) if isinstance(reason, BaseException) else None
    return own_error or damaged_catalog(f"A table of {location} is damaged: {reason}")


def damaged_catalog(message: str) -> Damaged:
    """Return the error for a catalog that must be rebuilt."""
    return Damaged(
        message,
        hint="The backups themselves may be whole: move the catalog away and run "
        "`lakebackup catalog rebuild`.",
    )
