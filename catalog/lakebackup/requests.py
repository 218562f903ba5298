"""What all requests have, and what makes two the same, from their fields, so that none is forgotten."""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from _typeshed import DataclassInstance

_ANY: TypeAdapter[Any] = TypeAdapter(Any)


@dataclass(frozen=True, slots=True)
class Request:
    """Where a run works. `catalog`: its URI, None: in the destination. `remote`: a Spark Connect server.

    A lease that is not renewed ends after `lease_ttl_s` seconds.
    """

    destination: str
    catalog: str | None = field(default=None, kw_only=True)
    lease_ttl_s: float = field(default=60.0, kw_only=True)
    remote: str | None = field(default=None, kw_only=True)


def asked(request: DataclassInstance, *, always: Sequence[str], never: Collection[str]) -> dict[str, Any]:
    """The fields of a request as JSON values: `always`, then every other one that has not its default.

    `never`: fields that make no difference. A field that is added to a request later is among the others: it
    makes a difference unless it is named, and what was recorded before there was such a field stays right.
    """
    default = {
        one.name: one.default_factory() if one.default_factory is not MISSING else one.default
        for one in fields(request)
    }
    values = {name: getattr(request, name) for name in default}
    others = [name for name in default if name not in always and name not in never]
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
