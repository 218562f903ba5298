"""`stream-metas/<ts>-<backup id>.meta`: what one flush of a change feed wrote, for tools without the catalog.

Sealed JSON with everything that TiDB's backup puts into its DataFileInfo, and what finding and reading a file
needs besides. One that would be long is an index of pieces; the index comes last, so that all of it is there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, cast

from lakebackup.errors import Damaged
from lakebackup.formats.logs.events import META_TABLE, PUT
from lakebackup.formats.logs.logfile import FORMAT
from lakebackup.rules import layout
from lakebackup.rules.layout import FORMAT as SEALED
from lakebackup.store.manifest import get_sealed, put_sealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakebackup.rows.backups import DataFile
    from lakebackup.storage import Storage

#: A `.meta` object with more than either is written as pieces.
MOST_FILES, MOST_BYTES = 20_000, 8 << 20
_HINT = "`lakebackup catalog rebuild` needs none of these objects; the files they list may still be whole."


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """A log file. `path` below the destination's root; instants in the feed's domain; keys in lower hex, an
    upper bound where `end_key` was cut, None without one. `sha_256`, `bytes`: of the object as it is stored.
    """

    path: str
    sha_256: str
    bytes: int
    number_of_entries: int
    min_ts: int
    max_ts: int
    min_begin_ts: int | None
    resolved_ts: int | None
    region_id: int
    start_key: str | None
    end_key: str | None
    cf: str
    type: Literal["Put", "Delete"]
    is_meta: bool
    table_id: int
    codec: str
    key_id: str | None

    @classmethod
    def of(cls, row: DataFile) -> FileInfo:
        """From the file's row in the catalog."""
        is_meta = row.role == "schema"
        return cls(
            path=row.path,
            sha_256=row.sha256,
            bytes=row.bytes,
            number_of_entries=row.entries,
            min_ts=row.min_ts,
            max_ts=row.max_ts,
            min_begin_ts=row.min_begin_ts,
            resolved_ts=row.resolved_ts,
            region_id=int(row.region) if row.region != "-" else 0,
            start_key=row.start_key,
            end_key=row.end_key,
            cf=cast(str, row.cf),
            type="Put" if row.op == PUT else "Delete",
            is_meta=is_meta,
            table_id=META_TABLE if is_meta else int(row.scope),
            codec=row.codec,
            key_id=row.key_id,
        )


_NAMES = frozenset(field.name for field in fields(FileInfo))


def write_stream_meta(
    storage: Storage,
    source: str,
    backup_id: str,
    ts: int,
    rows: Iterable[DataFile],
    *,
    most_files: int = MOST_FILES,
    most_bytes: int = MOST_BYTES,
) -> str:
    """Put the `.meta` of a flush whose checkpoint is `ts`; its path.

    `rows`: of all its parts, one after another; those that are no log files are left out, and at most a
    piece's are held. Writing it again replaces it by the same. Raises EnvironmentProblem.
    """
    head = {"format": SEALED, "source": source, "backup_id": backup_id, "resolved_ts": ts}
    pieces: list[dict[str, Any]] = []
    held: list[dict[str, Any]] = []
    size = 0

    def put_piece() -> None:
        path = layout.stream_meta_path(source, backup_id, ts, len(pieces))
        put_sealed(storage, path, {**head, "piece": len(pieces), "files": held})
        entries = sum(info["number_of_entries"] for info in held)
        stored = sum(info["bytes"] for info in held)
        pieces.append({"path": path, "files": len(held), "entries": entries, "bytes": stored})
        held.clear()

    for row in rows:
        if row.format != FORMAT:
            continue
        info = asdict(FileInfo.of(row))
        length = len(json.dumps(info))
        if held and (len(held) >= most_files or size + length > most_bytes):
            put_piece()
            size = 0
        held.append(info)
        size += length
    path = layout.stream_meta_path(source, backup_id, ts)
    if not pieces:
        put_sealed(storage, path, {**head, "files": held})
        return path
    put_piece()
    put_sealed(storage, path, {**head, "pieces": pieces})
    return path


def read_stream_meta(storage: Storage, path: str) -> Iterator[FileInfo]:
    """The log files that a `.meta` object lists, itself or in its pieces, piece by piece.

    Raises NotFound (it, or a piece of it), Damaged (torn, flipped, pieces of another flush), UsageProblem
    (written by a newer version).
    """
    content = get_sealed(storage, path)
    try:
        if "pieces" not in content:
            yield from _files(content["files"])
            return
        flush = _flush(content)
        pieces = [(p["path"], p["files"], p["entries"], p["bytes"]) for p in content["pieces"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{path}: {error!r}.", hint=_HINT) from error
    for number, (name, *expected) in enumerate(pieces):
        piece = get_sealed(storage, name)
        try:
            files = list(_files(piece["files"]))
            found = [len(files), sum(f.number_of_entries for f in files), sum(f.bytes for f in files)]
            if (_flush(piece), piece["piece"], found) != (flush, number, expected):
                raise ValueError(f"it is not the piece that {path} names")
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"{name}: {error}.", hint=_HINT) from error
        yield from files


def _flush(content: Mapping[str, Any]) -> tuple[str, str, int]:
    return content["source"], content["backup_id"], content["resolved_ts"]


def _files(found: Any) -> Iterator[FileInfo]:
    for values in found:
        if values.keys() != _NAMES:
            raise ValueError(f"a file has the fields {', '.join(sorted(values))}")
        yield FileInfo(**values)
