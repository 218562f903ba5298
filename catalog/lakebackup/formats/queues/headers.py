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

#: The key, in the header of a data file of messages, of the HeaderNames with which they were read.
NAMES = "lakebackup.headers"
#: The header of the message that a restore writes before the messages that it restores.
WATERMARK = "lakebackup-watermark"


class Kind(IntEnum):
    """What a message does. The header has the name in either case. Without the header it is a write."""

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
        """The names as JSON, for the header of a data file."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, metadata: Mapping[str, bytes]) -> HeaderNames | None:
        """The names with which a data file's messages were read, from its header; None if it has none."""
        text = metadata.get(NAMES)
        return cls(**json.loads(text)) if text else None
