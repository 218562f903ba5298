"""The roles that docs/s3.md shows, and commands given under one."""

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
    """What the page grants."""
    page = (Path(__file__).parents[2] / "docs/s3.md").read_text("utf-8")
    (rights,) = re.findall(rf"^```json {role}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return frozenset(json.loads(rights))


@contextmanager
def acting_as(role: Role, proxy: FaultProxy) -> Iterator[None]:
    """The block's clients of `proxy` have the role."""
    proxy.rights = rights_of(role)
    try:
        yield
    finally:
        proxy.rights = None
