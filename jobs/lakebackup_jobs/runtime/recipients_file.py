"""The file of recipients that the settings name: one recipient a line, and comments."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lakebackup.encryption.recipients import recipient
from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup.storage.private import require_own

_NEW_MODE = 0o644


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


def _text_in(line: str) -> str:
    text = line.strip()
    return "" if text.startswith("#") else text
