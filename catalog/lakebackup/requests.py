"""The base classes of requests for jobs, and a digest that tells whether two requests are the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_ADAPTER: TypeAdapter[Any] = TypeAdapter(Any)
#: The default size in bytes up to which the runner `auto` runs a job in its own process.
LOCAL_BELOW = 64 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """The parameters of every job. `catalog`: None if it is in the repository, `destination`.

    `remote`: a Spark Connect server. `dry_run`: the job only plans. `lease_ttl_s`: the job's lease expires
    after so many seconds without a renewal. `bandwidth`: bytes per second that all tasks together may read or
    write; None means no limit.
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
    """The parameters of a job whose tasks run on Spark or in its own process, see lifecycle.tasks.runner.

    The runner `auto` runs a job that reads up to `local_below` bytes in the process.
    """

    _: KW_ONLY
    runner: Literal["auto", "spark", "local"] = "auto"
    local_below: int = LOCAL_BELOW


def digest_fields(
    request: DataclassInstance, *, always: Sequence[str], never: Collection[str]
) -> dict[str, Any]:
    """The fields of a request that make a difference, as JSON values, for `digest`.

    These are the fields `always`, then every other field whose value is not its default. The fields `never`
    and the bandwidth make no difference. A field that a later version adds makes a difference unless it is in
    `never`. With its default it is left out, so earlier recorded digests stay valid.
    """
    defaults = {
        field.name: field.default_factory() if field.default_factory is not MISSING else field.default
        for field in fields(request)
    }
    values = {name: getattr(request, name) for name in defaults}
    other_names = [name for name in defaults if name not in (*always, *never, "bandwidth")]
    return {
        name: _ADAPTER.dump_python(values[name], mode="json")
        for name in (*always, *(name for name in other_names if values[name] != defaults[name]))
    }


def digest(of: str, values: Mapping[str, Any], *, always: Sequence[str]) -> str:
    """A digest of the result of `digest_fields` for the job `of`, 32 hex digits.

    It covers the values of `always` in order, and the other fields with their names.
    """
    other_values = [
        name if value is True else [name, value] for name, value in values.items() if name not in always
    ]
    content = [of, *(values[name] for name in always), *other_values]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
