"""The roles and rights that docs/s3.md shows, and clients that have them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.s3_faults import FaultProxy

Role = Literal["append-only", "read-only"]


@dataclass(frozen=True)
class Rights:
    """The actions that a command needs, and all that it uses."""

    needed: frozenset[str]
    all_actions: frozenset[str]


def rights_of(role: Role) -> frozenset[str]:
    """The actions that the page grants to a role."""
    (rights,) = re.findall(rf"^```json {role}\n(.*?)^```$", _page(), re.MULTILINE | re.DOTALL)
    return frozenset(json.loads(rights))


@cache
def rights_by_command() -> dict[str, Rights]:
    """The rows of the page's table: command -> its rights."""
    header = "| command | needs | also uses |\n| --- | --- | --- |\n"
    table = _page().partition(header)[2].partition("\n\n")[0]
    rights: dict[str, Rights] = {}
    for row in table.splitlines():
        commands, needed, optional = (re.findall(r"`(.+?)`", cell) for cell in row.strip("|").split("|"))
        for command in commands:
            assert command not in rights, f"{command} is in two rows"
            rights[command] = Rights(frozenset(needed), frozenset(needed + optional))
    return rights


def _page() -> str:
    return (Path(__file__).parents[2] / "docs/s3.md").read_text("utf-8")


@contextmanager
def acting_as(role: Role | Collection[str], proxy: FaultProxy) -> Iterator[None]:
    """Clients of `proxy` have the role, or these actions, inside the block."""
    proxy.rights = rights_of(role) if isinstance(role, str) else role
    try:
        yield
    finally:
        proxy.rights = None
