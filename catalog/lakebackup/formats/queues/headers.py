"""The headers of an engine's messages: tid, transaction and kind.

A message belongs to the transaction that it names. A message without a transaction takes effect at its own
tid. A transaction takes effect, or is rolled back, at the tid of the message that ends it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Literal

from lakebackup.errors import UsageProblem

#: The key in a data file's metadata under which it records the HeaderNames that its messages were read with.
NAMES = "lakebackup.headers"
#: The header by which a watermark is known: the message that a restore writes before those that it restores.
WATERMARK = "lakebackup-watermark"


class Kind(IntEnum):
    """What a message does. Its kind header has the name in upper or lower case. Without one it is a write."""

    WRITE = 0
    BEGIN = 1
    COMMIT = 2
    ROLLBACK = 3
    WATERMARK = 4


@dataclass(frozen=True, slots=True)
class HeaderNames:
    """The names of the headers. Raises UsageProblem if two are the same, since one would never be read.

    `tid_format`: tids are decimal digits, or 8 bytes with the most significant first.
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
        """The names as JSON, for the metadata of a data file."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, metadata: Mapping[str, bytes]) -> HeaderNames | None:
        """Return the names that a data file's metadata records; None if it records none."""
        text = metadata.get(NAMES)
        return cls(**json.loads(text)) if text else None
