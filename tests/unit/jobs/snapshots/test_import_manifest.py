"""Manifests of other tools become backups: over real tables and objects, without Java."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import quiet
from tests.support.looks import seen
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.formats.snapshots.manifest_json import manifest_json
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.snapshots.import_manifest import ManifestRequest, run

SHA = "ab" * 32


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A destination with a catalog, and objects that another tool put there."""
    made = MadeBackups(tmp_path / "backups ü")
    for name in ("one.sst", "two.sst", "CURRENT"):
        made.storage.put(f"theirs/{name}", b"x" * 100)
    return made.folder


def bring(root: Path, content: Any, *, source: str = "yb", **asked: Any) -> dict[str, Any]:
    text = root.parent / "manifest.json"
    text.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    request = ManifestRequest(destination=str(root), file=text, source=source, **asked)
    return run(request, reporter=quiet())


def at(root: Path, name: str, **said: Any) -> dict[str, Any]:
    return {"location": f"file://{root}/theirs/{name}", "timestamp": 1000, "version": 2} | said


def left(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / "yb").rglob("*") if path.is_file())


def test_a_manifest_becomes_a_backup(root: Path) -> None:
    first = {
        "t1": {"a": {"one.sst": at(root, "one.sst"), "CURRENT": at(root, "CURRENT", timestamp=3000)}},
        "t2": {"b": {"two.sst": at(root, "two.sst", size=100, sha256=SHA, mode=0o600)}, "c": {}},
    }
    done = bring(root, first)
    assert (done["tables"], done["files"], done["bytes"], done["end_ts"]) == (2, 3, 100, 3000)
    found = seen(
        root, "SELECT name, bytes, sha256, links, mode, path, stored FROM snapshot_files ORDER BY name"
    )
    one = {"bytes": None, "sha256": hashlib.sha256(b"x" * 100).hexdigest(), "mode": 0o644}
    two = {"bytes": 100, "sha256": SHA, "mode": 0o600}
    assert found[1:] == [
        {"name": name, "path": f"theirs/{name}", "links": 2, "stored": True, **own}
        for name, own in (("one.sst", one), ("two.sst", two))
    ]
    # What is imported next takes the place of all that.
    second = {"t1": {"a": {"one.sst": at(root, "one.sst", timestamp=5000)}}}
    done = bring(root, second)
    assert seen(root, "SELECT name, added_in, gone_in FROM snapshot_files ORDER BY added_in, name") == [
        {"name": "CURRENT", "added_in": 1, "gone_in": 2},
        {"name": "one.sst", "added_in": 1, "gone_in": 2},
        {"name": "two.sst", "added_in": 1, "gone_in": 2},
        {"name": "one.sst", "added_in": 2, "gone_in": None},
    ]
    assert [row["intact"] for row in seen(root, "SELECT intact FROM backups")] == [True, True]
    logged = {row["subject"]: json.loads(row["detail"]) for row in seen(root, "SELECT * FROM audit")}
    assert logged[done["backup_id"]]["files"] == 1
    again = json.loads("".join(manifest_json(CatalogReader.require(str(root)), done["backup_id"])))
    assert again["t1"]["a"]["one.sst"].items() >= second["t1"]["a"]["one.sst"].items()
    assert list((root / "yb" / "backups" / done["backup_id"]).glob("manifest-19700101T000005Z-*.json"))


def test_what_cannot_be_leaves_nothing_behind(root: Path) -> None:
    good = {"one.sst": at(root, "one.sst")}
    for wrong, why in (
        (at(root, "gone.sst"), "gone.sst is not there"),
        (at(root, "two.sst", size=101), "t/a/f: it should end behind its object, which has 100 bytes"),
        (at(root, "two.sst", offset=60, size=50), "behind its object"),
        (at(root, "../../../etc/passwd"), "it has '..'"),
        ({"location": "/etc/passwd", "timestamp": 1}, "is in no repository that the catalog knows"),
        (at(root, "two.sst", timestamp="soon"), "its timestamp is 'soon'"),
    ):
        with pytest.raises(UsageProblem, match="Nothing was imported") as raised:
            bring(root, {"t": {"a": good | {"f": wrong}}})
        assert why in raised.value.message
    many = {"t": {"a": good | {f"f{n}": at(root, "gone.sst") for n in range(30)}}}
    with pytest.raises(UsageProblem, match="and 10 more"):
        bring(root, many)
    with pytest.raises(UsageProblem, match=r"This is not a manifest of a snapshot: .*twice"):
        bring(root, json.dumps({"t": {"a": good}}).removesuffix("}") + ', "t": {}}')
    with pytest.raises(UsageProblem, match="names no file"):
        bring(root, {})
    assert left(root) == []
    assert seen(root, "SELECT * FROM backups") == seen(root, "SELECT * FROM snapshot_files") == []


def test_backups_follow_each_other_in_time(root: Path) -> None:
    manifest = {"t": {"a": {"one.sst": at(root, "one.sst")}}}
    bring(root, manifest, taken_at=7000)
    before = left(root)
    with pytest.raises(UsageProblem, match=r"is of 1970-01-01T00:00:01\.000Z, and the backups of yb already"):
        bring(root, manifest)
    assert left(root) == before
    assert bring(root, manifest, taken_at=8000)["end_ts"] == 8000


def test_a_time_to_come_is_no_time_of_a_snapshot(root: Path) -> None:
    """A backup of the future would let none follow it."""
    now = time.time_ns() // 1_000_000
    soon = {"t": {"a": {"one.sst": at(root, "one.sst", timestamp=now + 3_600_000)}}}
    for asked in ({}, {"taken_at": now + 3_600_000}, {"taken_at": 1 << 60}):
        with pytest.raises(UsageProblem, match="yet to come") as raised:
            bring(root, soon, **asked)
        assert "--taken-at" in raised.value.hint
    assert left(root) == []
    assert bring(root, soon, taken_at=now)["end_ts"] == now


def test_a_source_of_topics_takes_none(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path / "backups", source="yb")
    made.backup([[Record(0, 0)]])
    made.flush()
    made.storage.put("theirs/one.sst", b"x")
    manifest = {"t": {"a": {"one.sst": at(made.folder, "one.sst")}}}
    with pytest.raises(Refused, match="of another kind"):
        bring(made.folder, manifest)
    with pytest.raises(NotFound, match=r"There is no file .*none\.json"):
        run(
            ManifestRequest(destination=str(made.folder), file=tmp_path / "none.json", source="yb"),
            reporter=quiet(),
        )
