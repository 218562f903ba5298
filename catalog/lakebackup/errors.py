"""All expected errors, each with the exit code of the command line.

A message says what is wrong and where, its hint what to do next. Any other exception is a bug, and ends the
command with exit code 1. docs/exit-codes.md lists the codes, with the docstrings of the direct subclasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self


class LakebackupError(Exception):
    """The base of all expected errors. `retryable`: trying again later can help. `result`: what a run did
    although it failed in part, or None. `concerns_identity`: the identity of the settings is missing or
    wrong, which says nothing about the stored data."""

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    result: Mapping[str, Any] | None = None
    concerns_identity: bool = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def with_result(self, result: Mapping[str, Any]) -> Self:
        """Set `result` and return this error."""
        self.result = result
        return self

    def with_identity_concern(self) -> Self:
        """Set `concerns_identity` and return this error."""
        self.concerns_identity = True
        return self

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Spark workers pickle errors for the driver; by default pickle loses keyword arguments.
        return partial(type(self), hint=self.hint), (self.message,)


def error_of(exit_code: int) -> type[LakebackupError]:
    """The error class with this exit code; Incomplete if there is none."""
    kinds = (kind for kind in LakebackupError.__subclasses__() if vars(kind).get("exit_code") == exit_code)
    return next(kinds, Incomplete)


class UsageProblem(LakebackupError):
    """Flags, configuration or SQL are invalid; nothing was started."""

    exit_code = 2


class NeedsSpark(UsageProblem):
    """A SELECT that DuckDB cannot answer as Spark would."""


class NotFound(LakebackupError):
    """A backup, topic, file or catalog that was named does not exist."""

    exit_code = 3


class Incomplete(LakebackupError):
    """Part of the request was done and is kept, the rest failed."""

    exit_code = 4


class Refused(LakebackupError):
    """The request could not give a correct result, so nothing was written."""

    exit_code = 5


class EnvironmentProblem(LakebackupError):
    """Java, the network, a broker, a disk: something outside the project is missing or failed."""

    exit_code = 6
    retryable = True


class NoPermission(EnvironmentProblem):
    """The storage knows this account and does not permit the request."""


class OutputLost(EnvironmentProblem):
    """Standard output cannot be written any more. The command's work is done all the same."""


class TooLarge(EnvironmentProblem):
    """A query needs more memory than its engine may use."""


class Damaged(LakebackupError):
    """Stored data does not match the catalog: it is missing, truncated, changed or invalid."""

    exit_code = 7


class Busy(LakebackupError):
    """Another run holds the lease on the same source or catalog."""

    exit_code = 8
    retryable = True


class NeedsFull(LakebackupError):
    """The source lost data that the next backup would read; the user must request a new full."""

    exit_code = 9


class TimedOut(LakebackupError):
    """A query did not end within its time limit."""

    exit_code = 10
