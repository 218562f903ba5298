"""The roles that docs/s3.md shows, and clients that have one of them."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.s3_faults import FaultProxy

Role = Literal["append-only", "read-only"]


def rights_of(role: Role) -> frozenset[str]:
    """The actions that the page grants to a role."""
    page = (Path(__file__).parents[2] / "docs/s3.md").read_text("utf-8")
    (rights,) = re.findall(rf"^```json {role}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return frozenset(json.loads(rights))


@contextmanager
def acting_as(role: Role, proxy: FaultProxy) -> Iterator[None]:
    """Clients of `proxy` have the role inside the block."""
    proxy.rights = rights_of(role)
    try:
        yield
    finally:
        proxy.rights = None
