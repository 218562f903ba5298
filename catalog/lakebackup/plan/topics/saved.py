"""A restore plan in a file: the request, the catalog that it was planned from, and a digest of its files.

A run that applies the plan later computes it again. The plan holds only if the same files come out, which the
digest shows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from lakebackup.errors import Damaged, LakebackupError, NotFound, Refused, UsageProblem
from lakebackup.plan.topics.request import RestoreRequest, plan_restore
from lakebackup.plan.topics.restore import RestorePlan
from lakebackup.rows.digest import Digest
from lakebackup.rules.times import format_ts
from lakebackup.sql_engine.delta.table import open_table
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.reader import CatalogReader

FORMAT = 1
# Fields of a request that are not saved: the run that applies the plan has its own. `kafka` may hold secrets.
_RUN_FIELDS = frozenset(
    (
        "destination", "catalog", "kafka", "dry_run", "lease_ttl_s", "remote", "save_plan", "plan", "engine",
        "runner", "local_below",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """The content of a plan file. `made_at` in us since 1970 UTC; `catalog`: the Delta id of its table of
    backups; `versions`: the Delta versions of its tables."""

    made_at: int
    tool: str
    catalog: str
    versions: Mapping[str, int]
    request: Mapping[str, Any]
    selection: str
    parameters: Mapping[str, Any]
    files: int
    bytes: int
    entries: int
    digest: str
    obstacles: tuple[str, ...]

    def request_for(self, run: RestoreRequest) -> RestoreRequest:
        """The plan's request, with the locations and credentials of the run that applies it."""
        run_values: dict[str, Any] = {name: getattr(run, name) for name in _RUN_FIELDS}
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in self.request.items()}
        return RestoreRequest(**values, **run_values)


def make(
    request: RestoreRequest, plan: RestorePlan, reader: CatalogReader, *, now_us: int, tool: str
) -> SavedPlan:
    """The content to save of a plan of the catalog that `reader` reads; `now_us` in us since 1970 UTC."""
    request_values = {
        k: v for k, v in asdict(replace(request, source=plan.source)).items() if k not in _RUN_FIELDS
    }
    return SavedPlan(
        made_at=now_us,
        tool=tool,
        catalog=catalog_id(reader),
        versions=reader.versions(),
        request=request_values,
        selection=plan.selection,
        parameters=dict(plan.parameters),
        files=plan.files,
        bytes=plan.bytes,
        entries=plan.entries,
        digest=digest_of(plan.file),
        obstacles=tuple(str(obstacle) for obstacle in plan.obstacles),
    )


def write(path: Path, plan: SavedPlan) -> None:
    """Write the plan into a new file, sealed by its SHA-256. Raises Refused (it exists), UsageProblem."""
    body = {"format": FORMAT, "plan": "restore topics", **asdict(plan)}
    content = json.dumps({**body, "sha256": _seal(body)}, indent=2, ensure_ascii=False)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(f"{content}\n")
    except FileExistsError:
        raise Refused(f"{path} is there already.", hint="Name another file.") from None
    except OSError as error:
        raise UsageProblem(f"The plan cannot be written to {path}: {error}.") from error


def read(path: Path) -> SavedPlan:
    """Read the plan in a file. Raises NotFound, Damaged (it was changed), UsageProblem (a newer format)."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, seal = content["format"], content.pop("sha256")
        is_intact = seal == _seal(content)
    except FileNotFoundError as error:
        raise NotFound(f"There is no plan {path}.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{path} is no plan: {error!r}.", hint="Plan once more with --save-plan.") from error
    if isinstance(version, int) and version > FORMAT:
        raise UsageProblem(
            f"{path} has format version {version}; this lakebackup reads versions up to {FORMAT}.",
            hint="Use the lakebackup that wrote it, or a newer one.",
        )
    if not is_intact or version != FORMAT or content.pop("plan", None) != "restore topics":
        raise Damaged(
            f"{path} was changed after it was written: its contents do not match its SHA-256.",
            hint="Plan once more with --save-plan.",
        )
    content.pop("format")
    try:
        return SavedPlan(**{**content, "obstacles": tuple(content["obstacles"])})
    except (TypeError, KeyError) as error:
        raise Damaged(f"{path}: {error}.", hint="Plan once more with --save-plan.") from error


def require_holds(
    saved: SavedPlan, plan: RestorePlan, request: RestoreRequest, reader: CatalogReader
) -> None:
    """Raise Refused when the plan, computed again as `plan`, differs from the saved one; it says how."""
    new_obstacles = [str(o) for o in plan.obstacles if str(o) not in saved.obstacles]
    if digest_of(plan.file) == saved.digest and not new_obstacles:
        return
    lines = [*_changes(saved, request, plan.file, reader), *new_obstacles]
    if not lines:
        lines = [
            f"it was {saved.files} files of {saved.bytes} bytes, now {plan.files} files of {plan.bytes} bytes"
        ]
    raise Refused(
        f"The plan of {format_ts(saved.made_at // 1000)} does not hold any more:\n"
        + "\n".join(f"  {line}" for line in lines),
        hint="Nothing was restored. Plan once more; with --to-time newer backups change nothing.",
    )


def require_same_catalog(saved: SavedPlan, reader: CatalogReader) -> None:
    """Raise Refused when the plan was made from another catalog, or from one that was recreated since."""
    if catalog_id(reader) != saved.catalog:
        raise Refused(
            f"The plan was made of another catalog than {reader.catalog_uri}, or it was recreated since.",
            hint="Check the repository (--repo) and the catalog (--catalog), or plan once more.",
        )


def catalog_id(reader: CatalogReader) -> str:
    """The identity of a catalog: Delta's id of its table of backups."""
    return str(open_table(f"{reader.catalog_uri}/backups").metadata().id)


def digest_of(*files: PlanFile) -> str:
    """A digest of the locations and contents of planned files, whatever their order."""
    digest = Digest()
    batches = (file.batches(columns=["destination", "path", "sha256", "bytes"]) for file in files)
    for batch in chain.from_iterable(batches):
        for row in batch.to_pylist():
            digest.add(f"{row['destination']} {row['path']} {row['sha256']} {row['bytes']}")
    return digest.hex()


def _changes(saved: SavedPlan, request: RestoreRequest, file: PlanFile, reader: CatalogReader) -> list[str]:
    """Which files came and went, if the catalog can still be read as it was then."""
    try:
        old_reader = CatalogReader.require(request.destination, request.catalog, as_of=saved.made_at)
        old_file = plan_restore(request, old_reader).file
    except LakebackupError:
        return []
    files = reader.with_rows("planned", old_file).with_rows("selected", file)
    texts = {"gone": "that it had are gone", "added": "that it did not have came in"}
    return [
        f"{row['files']} files {texts[row['change']]} ({row['cause']}), such as {row['path']}"
        for row in files.rows("plan_changes")
    ]


def _seal(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
