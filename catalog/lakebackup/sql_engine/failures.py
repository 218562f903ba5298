"""What Spark raises, as errors of this program's own kinds."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebackup import errors
from lakebackup.errors import Damaged, EnvironmentProblem, LakebackupError

if TYPE_CHECKING:
    from collections.abc import Iterator

# How Spark tells of a file of the catalog that is not as it was written.
_TORN = re.compile(
    r"(?:Checksum error|CRC checksum|FAILED_READ_FILE|[^\n]*is not a Parquet file)[^\n]{0,300}"
)
_DIED = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure")
_TOLD = re.compile(r"lakebackup\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def task_errors() -> Iterator[None]:
    """Around what makes Spark run tasks: their expected failures come out with their own type."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if _DIED.search(str(error)):
            raise EnvironmentProblem(
                "A Spark worker died in the middle of its task: killed, or out of memory.",
                hint="Nothing of this run is visible. Run it again; `dmesg` tells whether memory ran out.",
            ) from None
        told = told_in(error)
        torn = _TORN.search(str(error))
        if told is None and torn:
            raise damaged_table("the catalog", torn[0]) from None
        if told is None:
            raise
        raise told from None


def passed_on(error: LakebackupError) -> OSError:
    """An error as one that goes through other libraries, and is found again by `told_in`."""
    return OSError(f"lakebackup.errors.{type(error).__name__}: {error.message}")


def told_in(error: BaseException) -> LakebackupError | None:
    """The error of this program that another library's tells of; None when there is none in it."""
    told = _TOLD.search(str(error))
    if told is None:
        return None
    kind: type[LakebackupError] = getattr(errors, told[1], LakebackupError)
    return kind(told[2])


def damaged_table(where: str, what: object) -> LakebackupError:
    """The error for a table of the catalog whose files are not whole, or that could not be read at all."""
    told = told_in(what) if isinstance(what, BaseException) else None
    return told or Damaged(
        f"A table of {where} is damaged: {what}",
        hint="The backups themselves may be whole: move the catalog away and run "
        "`lakebackup catalog rebuild`.",
    )
