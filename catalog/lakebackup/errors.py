"""Every error a person can meet, each with the exit code the command line ends with.

A message says what was wrong, where, and what to do next. Anything that is not one of these
ends with exit code 1 and is a defect of ours. docs/exit-codes.md lists the codes.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar


class LakebackupError(Exception):
    """Base of all expected failures. `retryable` tells a caller that trying again later can help."""

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Spark workers send errors to the driver by pickle; keyword arguments do not survive it.
        return partial(type(self), hint=self.hint), (self.message,)


class UsageProblem(LakebackupError):
    """Flags, configuration or SQL that make no sense; nothing was started."""

    exit_code = 2


class NotFound(LakebackupError):
    """A backup, topic, file or catalog that was named does not exist."""

    exit_code = 3


class Incomplete(LakebackupError):
    """Some of what was asked was done and kept, the rest failed."""

    exit_code = 4


class Refused(LakebackupError):
    """What was asked cannot give a right result, so nothing was written."""

    exit_code = 5


class EnvironmentProblem(LakebackupError):
    """Java, the network, a broker, a disk: something outside the project is missing or failed."""

    exit_code = 6
    retryable = True


class TooLarge(EnvironmentProblem):
    """A query needs more memory than DuckDB may use; Spark can still run it."""


class Damaged(LakebackupError):
    """Stored bytes are not what the catalog says: missing, torn, flipped or lying."""

    exit_code = 7


class Busy(LakebackupError):
    """Another run holds the lease on the same source or catalog."""

    exit_code = 8
    retryable = True


class NeedsFull(LakebackupError):
    """The source lost what the next backup would have to read, and only a new full, asked for, can go on."""

    exit_code = 9


class TimedOut(LakebackupError):
    """A query did not end within its time limit."""

    exit_code = 10
