"""Manifests of snapshots for other tools: what is written, how much of it is held, what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.model import ARROW_SCHEMAS
from lakebackup.snapshot.manifest_json import export_manifest, manifest_json
from lakebackup.storage import open_storage
from lakebackup.store import CatalogReader

if TYPE_CHECKING:
    from pathlib import Path

ID = "20211124T013500Z-0000000{}"


class Given(CatalogReader):
    """A catalog whose rows are given."""

    def __init__(self, tables: dict[str, list[dict[str, Any]]]) -> None:
        super().__init__("nowhere")
        for table, schema in ARROW_SCHEMAS.items():
            self.give(f"raw_{table}", pa.Table.from_pylist(tables.get(table, []), schema))

    def destinations(self) -> dict[str, str]:
        return {"d": "file:///backups ü", "s": "s3://bucket/prod"}


def backup(number: int, **changes: Any) -> dict[str, Any]:
    name = ID.format(number)
    plain = dict.fromkeys(ARROW_SCHEMAS["backups"].names, "") | dict.fromkeys(
        ("chain_position", "level", "branch", "started_at", "finished_at", "files", "bytes", "entries"), 0
    )
    own = {"backup_id": name, "base": name, "number": number, "place": number, "parent_place": None}
    own |= {"source": "tablets", "source_kind": "snapshot", "state": "complete", "ts_domain": "ms"}
    return plain | own | {"start_ts": None, "end_ts": 1_637_717_700_000 + number} | changes


def file(number: int, scope: str, region: str, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "source": "tablets", "scope": scope, "region": region, "name": name, "role": "data",
        "backup_id": ID.format(number), "added_in": number, "bytes": 16, "mtime_ms": 1_637_717_000_000,
        "mode": 0o644, "links": 5, "sha256": "ab" * 32, "destination": "d", "position": 0,
        "path": f"tablets/snapshots/{ID.format(number)}/{scope}/{region}/{name}",
    } | changes  # fmt: skip


def test_a_manifest_has_the_files_of_the_snapshot_and_where_they_are(tmp_path: Path) -> None:
    reader = Given(
        {
            "backups": [backup(1), backup(2)],
            "snapshot_files": [
                file(1, "t1", "a", "000021.sst"),
                file(1, "t1", "a", "CURRENT"),
                file(2, "t1", "a", "CURRENT", destination="s", links=1),
                file(2, "t1", "b", 'say "ü"\n', bytes=None, sha256=None),
                file(2, "t0", "a", "in/000001.sst", position=7, role="schema"),
            ],
            "snapshot_departures": [
                {"source": "tablets", "scope": "t1", "region": "a", "name": "CURRENT", "added_in": 1}
                | {"gone_in": 2, "gone_by": ID.format(2)}
            ],
        }
    )
    path = export_manifest(reader, open_storage(str(tmp_path)), ID.format(2))
    assert path == f"tablets/backups/{ID.format(2)}/manifest-20211124T013500Z-{ID.format(2)}.json"
    text = (tmp_path / path).read_text(encoding="utf-8")
    found = json.loads(text)
    assert {
        table: {tablet: [*files] for tablet, files in tablets.items()} for table, tablets in found.items()
    } == {
        "t0": {"a": ["in/000001.sst"]},
        "t1": {"a": ["000021.sst", "CURRENT"], "b": ['say "ü"\n']},
    }
    assert found["t1"]["a"]["CURRENT"] == {
        "location": f"s3://bucket/prod/tablets/snapshots/{ID.format(2)}/t1/a/CURRENT",
        "timestamp": 1_637_717_000_000, "version": 1, "size": 16, "sha256": "ab" * 32,
        "mode": 0o644, "offset": 0, "role": "data",
    }  # fmt: skip
    assert found["t1"]["a"]["000021.sst"]["location"].startswith("file:///backups ü/tablets/snapshots/")
    assert found["t1"]["b"]['say "ü"\n'] | {"location": ""} == {
        "location": "", "timestamp": 1_637_717_000_000, "version": 5, "size": None, "sha256": None,
        "mode": 0o644, "offset": 0, "role": "data",
    }  # fmt: skip
    # A second look writes the same in its place.
    assert export_manifest(reader, open_storage(str(tmp_path)), ID.format(2)) == path
    assert (tmp_path / path).read_text(encoding="utf-8") == text


def test_an_empty_snapshot_has_an_empty_manifest() -> None:
    assert json.loads("".join(manifest_json(Given({"backups": [backup(1)]}), ID.format(1)))) == {}


def test_what_is_no_snapshot_or_is_gone_has_none() -> None:
    reader = Given({"backups": [backup(1, source_kind="kafka"), backup(2, state="deleted")]})
    with pytest.raises(UsageProblem, match="is no backup of a snapshot"):
        next(manifest_json(reader, ID.format(1)))
    with pytest.raises(NotFound, match="was deleted"):
        next(manifest_json(reader, ID.format(2)))
    with pytest.raises(NotFound, match="does not exist"):
        next(manifest_json(reader, ID.format(3)))
