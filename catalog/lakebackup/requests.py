"""What requests of jobs have in common, and what makes two of them the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from _typeshed import DataclassInstance

_ANY: TypeAdapter[Any] = TypeAdapter(Any)
#: The size in bytes up to which an increment is small.
LOCAL_BELOW = 16 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """What every job is asked with. `catalog` None: it is with the backups. `remote`: a Spark Connect server.

    `dry_run`: it only plans. `lease_ttl_s`: the job's lease expires when it is silent for so many seconds.
    `bandwidth`: bytes a second that all its tasks together read or write; None: as many as they can.
    """

    destination: str
    _: KW_ONLY
    catalog: str | None = None
    dry_run: bool = False
    remote: str | None = None
    lease_ttl_s: float = 60.0
    bandwidth: int | None = None


@dataclass(frozen=True, slots=True)
class RunRequest(Request):
    """As `Request`, of a job whose tasks run on Spark or in its own process: see lifecycle.runner.

    `auto` runs an increment of up to `local_below` bytes in the process.
    """

    _: KW_ONLY
    runner: Literal["auto", "spark", "local"] = "auto"
    local_below: int = LOCAL_BELOW


def asked(request: DataclassInstance, *, always: Sequence[str], never: Collection[str]) -> dict[str, Any]:
    """The fields of a request as JSON values: `always`, then every other one that has not its default.

    `never`: fields that make no difference; the bandwidth makes none. A field that is added to a request
    later is among the others: it makes a difference unless it is named, and what was recorded before there
    was such a field stays right.
    """
    default = {
        one.name: one.default_factory() if one.default_factory is not MISSING else one.default
        for one in fields(request)
    }
    values = {name: getattr(request, name) for name in default}
    others = [name for name in default if name not in (*always, *never, "bandwidth")]
    return {
        name: _ANY.dump_python(values[name], mode="json")
        for name in (*always, *(name for name in others if values[name] != default[name]))
    }


def digest(of: str, values: Mapping[str, Any], *, always: Sequence[str]) -> str:
    """32 hex digits of what `asked` returned: the values of `always` in order, the others by name."""
    others = [
        name if value is True else [name, value] for name, value in values.items() if name not in always
    ]
    content = [of, *(values[name] for name in always), *others]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
