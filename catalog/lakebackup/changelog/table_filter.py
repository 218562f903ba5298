"""Which tables of a change feed a person means: regular expressions over `db.name`, `!` leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebackup.patterns import compile_pattern

if TYPE_CHECKING:
    import re


@dataclass(frozen=True)
class TableFilter:
    """A table is meant when its whole `db.name` matches one of the expressions without `!`, or there are
    none of these, and none of those with one. Raises UsageProblem for what is no regular expression."""

    expressions: Sequence[str] = ()
    _taken: list[re.Pattern[str]] = field(init=False, repr=False, compare=False)
    _left: list[re.Pattern[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        taken = [compile_pattern(text) for text in self.expressions if not text.startswith("!")]
        left = [compile_pattern(text[1:]) for text in self.expressions if text.startswith("!")]
        object.__setattr__(self, "_taken", taken)
        object.__setattr__(self, "_left", left)

    def takes(self, db: str, name: str) -> bool:
        """Whether the table is meant."""
        whole = f"{db}.{name}"
        if self._taken and not any(pattern.fullmatch(whole) for pattern in self._taken):
            return False
        return not any(pattern.fullmatch(whole) for pattern in self._left)
