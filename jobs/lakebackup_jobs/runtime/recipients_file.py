"""The file of recipients that the settings name: one recipient a line, and comments."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lakebackup.encryption.recipients import recipient
from lakebackup.errors import Busy, EnvironmentProblem, UsageProblem
from lakebackup.storage.private import require_own

_NEW_MODE = 0o644
# How long a command waits for another one that changes the same file, and how often it looks.
_LOCK_WAIT_S = 10.0
_LOCK_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class RecipientsFile:
    """The lines of a file of recipients. Lines that are empty or begin with # name none."""

    path: Path
    lines: tuple[str, ...]

    @classmethod
    def read(cls, path: Path, *, may_be_missing: bool = False) -> RecipientsFile:
        """Read a file. `may_be_missing`: a missing one has no lines.

        Raises UsageProblem when that fails, and Refused when others may write it: they could add readers.
        """
        require_own(path, "The file of recipients")
        try:
            text = path.read_text("utf-8")
            return cls(path, tuple(text.removesuffix("\n").split("\n")) if text else ())
        except (OSError, UnicodeDecodeError) as error:
            if may_be_missing and isinstance(error, FileNotFoundError):
                return cls(path, ())
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise UsageProblem(
                f"The file of recipients {path} cannot be read: {reason}.",
                hint="Check recipients_file under [encryption] of the settings.",
            ) from None

    @property
    def texts(self) -> list[str]:
        """The recipients as they are written."""
        return [text for line in self.lines if (text := _text_in(line))]

    def located_texts(self) -> list[tuple[str, str]]:
        """The recipients as they are written, each with its line. Raises UsageProblem when there are none."""
        texts = [
            (text, f"line {number} of {self.path}")
            for number, line in enumerate(self.lines, start=1)
            if (text := _text_in(line))
        ]
        if not texts:
            raise UsageProblem(
                f"The file of recipients {self.path} names none, so nothing would be encrypted.",
                hint="Write one recipient a line, as age1…; or leave recipients_file out.",
            )
        return texts

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the recipients, each once. Raises UsageProblem for a line that is none."""
        return tuple(dict.fromkeys(recipient(text).name for text in self.texts))

    def with_recipients(self, names: Iterable[str]) -> RecipientsFile:
        """A copy with further recipients at its end."""
        return replace(self, lines=(*self.lines, *names))

    def without(self, names: Collection[str]) -> RecipientsFile:
        """A copy without the lines of these recipients. Comments stay as they are."""
        lines = [line for line in self.lines if not (_text_in(line) and recipient(line).name in names)]
        return replace(self, lines=tuple(lines))

    def write(self) -> None:
        """Replace the file as a whole, with its rights. Raises EnvironmentProblem."""
        target = self.path.resolve()  # a link stays one
        try:
            mode = target.stat().st_mode & 0o777 if target.exists() else _NEW_MODE
            descriptor, new_name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                    stream.writelines(f"{line}\n" for line in self.lines)
                    stream.flush()
                    os.fchmod(descriptor, mode)
                    os.fsync(descriptor)
                Path(new_name).replace(target)
            except BaseException:
                with suppress(OSError):
                    Path(new_name).unlink()
                raise
        except OSError as error:
            raise EnvironmentProblem(
                f"The file of recipients {self.path} cannot be written: {error.strerror}.",
                hint="It stays as it was. Run the command again as an account that may write its folder.",
            ) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file of recipients for the block, so that no other command changes it between read and write.

    The lock is a file beside it, which exists only as long. Raises Busy when another command has the lock for
    too long, and EnvironmentProblem when the lock cannot be created.
    """
    target = path.resolve()  # commands that use different links to a file exclude each other too
    lock_path = target.with_name(f".{target.name}.lock")
    deadline = time.monotonic() + _LOCK_WAIT_S
    try:
        while (descriptor := _try_lock(lock_path)) is None:
            if time.monotonic() >= deadline:
                raise Busy(
                    f"Another command is changing the file of recipients {path}.",
                    hint="Nothing was changed. Run the command again when the other one is done.",
                )
            time.sleep(_LOCK_POLL_S)
    except OSError as error:
        raise EnvironmentProblem(
            f"The file of recipients {path} cannot be locked: {lock_path}: {error.strerror}.",
            hint="It stays as it was. Run the command again as an account that may write its folder.",
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):
            lock_path.unlink()
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child process may have inherited it
        os.close(descriptor)


def _try_lock(lock_path: Path) -> int | None:
    """Create and lock a file. Return its descriptor; None while another command has the lock."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(lock_path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Otherwise the command before this one has deleted the file meanwhile, and another may create it.
        if os.path.samestat(os.fstat(descriptor), lock_path.lstat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _text_in(line: str) -> str:
    text = line.strip()
    return "" if text.startswith("#") else text
