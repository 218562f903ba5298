"""The headers of an engine's messages: tid, transaction and kind.

A message belongs to the transaction that it names; one that names none is done at its own tid. A transaction
is done, or undone, at the tid of the message that ends it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

from lakebackup.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

#: In the header of a data file of messages, the names of the headers that they were understood by.
NAMES = "lakebackup.headers"
#: The header of a message that a restore writes in front of what it restores.
WATERMARK = "lakebackup-watermark"


class Kind(IntEnum):
    """What a message does: in a header a word, in either case; one without the header is a write."""

    WRITE = 0
    BEGIN = 1
    COMMIT = 2
    ROLLBACK = 3
    WATERMARK = 4


@dataclass(frozen=True, slots=True)
class HeaderNames:
    """The names of the headers. Raises UsageProblem where two are the same: one of them would never be read.

    `tid_format`: a tid as decimal digits, or as 8 bytes, most significant first.
    """

    tid: str = "tid"
    transaction: str = "transaction"
    kind: str = "kind"
    tid_format: Literal["text", "int64"] = "text"

    def __post_init__(self) -> None:
        names = (self.tid, self.transaction, self.kind, WATERMARK)
        if len(set(names)) < len(names):
            raise UsageProblem(
                f"The headers of tid, transaction and kind are {self.tid}, {self.transaction} and "
                f"{self.kind}: each needs a name of its own, and {WATERMARK} is taken.",
                hint="Name them with --tid-header, --transaction-header and --kind-header.",
            )

    @property
    def text(self) -> str:
        """As the header of a data file has them."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, metadata: Mapping[str, bytes]) -> HeaderNames | None:
        """The names in a data file's header by which its messages were understood; None when it has none."""
        found = metadata.get(NAMES)
        return cls(**json.loads(found)) if found else None
