"""A restore plan in a file: what was asked, of which catalog, and which files that chose.

Applied later it is resolved once more, and holds only when the same files come out: a digest of them says so.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged, LakebackupError, NotFound, Refused, UsageProblem
from lakebackup.plan.topics.request import RestoreRequest, plan_restore
from lakebackup.rows.digest import LANES, Digest
from lakebackup.rules.times import format_ts
from lakebackup.sql_engine.delta.table import open_table
from lakebackup.store.reader import CatalogReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup.store.selection import Selection

FORMAT = 1
# Of a request: what belongs to the run that applies the plan. `kafka` may hold secrets.
_OF_THE_RUN = frozenset(
    {"destination", "catalog", "kafka", "dry_run", "lease_ttl_s", "remote", "save_plan", "plan", "engine"}
)


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """`made_at` in us since 1970 UTC; `catalog` is the id of its table of backups, `versions` Delta's."""

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

    def asked(self, run: RestoreRequest) -> RestoreRequest:
        """The plan's request, with places and credentials of the run that applies it."""
        given: dict[str, Any] = {name: getattr(run, name) for name in _OF_THE_RUN}
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in self.request.items()}
        return RestoreRequest(**values, **given)


def make(request: RestoreRequest, plan: RestorePlan, *, now: int, tool: str) -> SavedPlan:
    """What is saved of a plan; `now` in us since 1970 UTC."""
    reader = plan.chosen.reader
    asked = {k: v for k, v in asdict(replace(request, source=plan.source)).items() if k not in _OF_THE_RUN}
    return SavedPlan(
        made_at=now,
        tool=tool,
        catalog=catalog_id(reader),
        versions=reader.versions(),
        request=asked,
        selection=plan.selection,
        parameters=dict(plan.parameters),
        files=plan.files,
        bytes=plan.bytes,
        entries=plan.entries,
        digest=digest_of(plan.chosen),
        obstacles=tuple(str(obstacle) for obstacle in plan.obstacles),
    )


def write(path: Path, plan: SavedPlan) -> None:
    """Put the plan into a file that is not there yet, sealed by its SHA-256. Raises Refused."""
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
    """The plan in a file. Raises NotFound, Damaged (it is not as it was written), UsageProblem (newer)."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, seal = content["format"], content.pop("sha256")
        whole = seal == _seal(content)
    except FileNotFoundError as error:
        raise NotFound(f"There is no plan {path}.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{path} is no plan: {error!r}.", hint="Plan once more with --save-plan.") from error
    if isinstance(version, int) and version > FORMAT:
        raise UsageProblem(
            f"{path} has format version {version}; this lakebackup reads versions up to {FORMAT}.",
            hint="Use the lakebackup that wrote it, or a newer one.",
        )
    if not whole or version != FORMAT or content.pop("plan", None) != "restore topics":
        raise Damaged(
            f"{path} was changed after it was written: its contents do not match its SHA-256.",
            hint="Plan once more with --save-plan.",
        )
    content.pop("format")
    try:
        return SavedPlan(**{**content, "obstacles": tuple(content["obstacles"])})
    except (TypeError, KeyError) as error:
        raise Damaged(f"{path}: {error}.", hint="Plan once more with --save-plan.") from error


def require_holds(saved: SavedPlan, made: RestorePlan, request: RestoreRequest) -> None:
    """Refused when the plan, recreated as `made`, is not what was saved; says what differs."""
    against = [str(o) for o in made.obstacles if str(o) not in saved.obstacles]
    if digest_of(made.chosen) == saved.digest and not against:
        return
    lines = [*_changes(saved, request, made.chosen), *against]
    if not lines:
        lines = [
            f"it was {saved.files} files of {saved.bytes} bytes, now {made.files} files of {made.bytes} bytes"
        ]
    raise Refused(
        f"The plan of {format_ts(saved.made_at // 1000)} does not hold any more:\n"
        + "\n".join(f"  {line}" for line in lines),
        hint="Nothing was restored. Plan once more; with --to-time newer backups change nothing.",
    )


def require_same_catalog(saved: SavedPlan, reader: CatalogReader) -> None:
    """Refused when the plan was made of another catalog, or of one that was recreated since."""
    if catalog_id(reader) != saved.catalog:
        raise Refused(
            f"The plan was made of another catalog than {reader.catalog_uri}, or it was recreated since.",
            hint="Check the repository (--repo) and the catalog (--catalog), or plan once more.",
        )


def catalog_id(reader: CatalogReader) -> str:
    """What identifies a catalog: Delta's id of the table of backups."""
    return str(open_table(f"{reader.catalog_uri}/backups").metadata().id)


def digest_of(files: Selection) -> str:
    """Of chosen files, whatever their order: where they are, and what they hold."""
    digest = Digest()
    for row in files.map(
        _digests, ", ".join(f"lane_{lane} BIGINT" for lane in range(LANES)), "selected_files"
    ):
        digest.add_lanes(row.values())
    return digest.hex()


def _digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The sums of some files, one row."""
    import pyarrow as pa

    digest = Digest()
    for row in chain.from_iterable(batch.to_pylist() for batch in batches):
        digest.add(f"{row['destination']} {row['path']} {row['sha256']} {row['bytes']}")
    yield pa.RecordBatch.from_pylist([{f"lane_{lane}": found for lane, found in enumerate(digest.lanes)}])


def _changes(saved: SavedPlan, request: RestoreRequest, files: Selection) -> list[str]:
    """Which files came and went, as far as the catalog can still be asked as it was."""
    try:
        then = CatalogReader.require(request.destination, request.catalog, as_of=saved.made_at)
        before = plan_restore(request, then).chosen.query("selected_files").read_all()
        files.reader.give("planned", before.select(["destination", "path"]))
    except LakebackupError:
        return []
    words = {"gone": "that it had are gone", "added": "that it did not have came in"}
    return [
        f"{row['files']} files {words[row['change']]} ({row['cause']}), such as {row['path']}"
        for row in files.rows("plan_changes")
    ]


def _seal(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
