"""Manifests of other tools become backups, over real tables and objects and without Java."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import quiet
from tests.support.looks import select_rows
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.formats.snapshots.manifest_json import manifest_json
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.snapshots.import_manifest import ManifestRequest, run

SHA = "ab" * 32


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A destination with a catalog, and objects that another tool put there."""
    backups = MadeBackups(tmp_path / "backups ü")
    for name in ("one.sst", "two.sst", "CURRENT"):
        backups.storage.put(f"theirs/{name}", b"x" * 100)
    return backups.folder


def import_manifest(root: Path, content: Any, *, source: str = "yb", **options: Any) -> dict[str, Any]:
    text = root.parent / "manifest.json"
    text.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    request = ManifestRequest(destination=str(root), file=text, source=source, **options)
    return run(request, reporter=quiet())


def manifest_entry(root: Path, name: str, **changes: Any) -> dict[str, Any]:
    return {"location": f"file://{root}/theirs/{name}", "timestamp": 1000, "version": 2} | changes


def stored_files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / "yb").rglob("*") if path.is_file())


def test_a_manifest_becomes_a_backup(root: Path) -> None:
    first = {
        "t1": {
            "a": {
                "one.sst": manifest_entry(root, "one.sst"),
                "CURRENT": manifest_entry(root, "CURRENT", timestamp=3000),
            }
        },
        "t2": {"b": {"two.sst": manifest_entry(root, "two.sst", size=100, sha256=SHA, mode=0o600)}, "c": {}},
    }
    result = import_manifest(root, first)
    assert (result["tables"], result["files"], result["bytes"], result["end_ts"]) == (2, 3, 100, 3000)
    rows = select_rows(
        root, "SELECT name, bytes, sha256, links, mode, path, stored FROM snapshot_files ORDER BY name"
    )
    first_columns = {"bytes": None, "sha256": hashlib.sha256(b"x" * 100).hexdigest(), "mode": 0o644}
    second_columns = {"bytes": 100, "sha256": SHA, "mode": 0o600}
    assert rows[1:] == [
        {"name": name, "path": f"theirs/{name}", "links": 2, "stored": True, **columns}
        for name, columns in (("one.sst", first_columns), ("two.sst", second_columns))
    ]
    # The next import takes the place of all these files.
    second = {"t1": {"a": {"one.sst": manifest_entry(root, "one.sst", timestamp=5000)}}}
    result = import_manifest(root, second)
    assert select_rows(
        root, "SELECT name, added_in, gone_in FROM snapshot_files ORDER BY added_in, name"
    ) == [
        {"name": "CURRENT", "added_in": 1, "gone_in": 2},
        {"name": "one.sst", "added_in": 1, "gone_in": 2},
        {"name": "two.sst", "added_in": 1, "gone_in": 2},
        {"name": "one.sst", "added_in": 2, "gone_in": None},
    ]
    assert [row["intact"] for row in select_rows(root, "SELECT intact FROM backups")] == [True, True]
    logged = {row["subject"]: json.loads(row["detail"]) for row in select_rows(root, "SELECT * FROM audit")}
    assert logged[result["backup_id"]]["files"] == 1
    exported = json.loads("".join(manifest_json(CatalogReader.require(str(root)), result["backup_id"])))
    assert exported["t1"]["a"]["one.sst"].items() >= second["t1"]["a"]["one.sst"].items()
    assert list((root / "yb" / "backups" / result["backup_id"]).glob("manifest-19700101T000005Z-*.json"))


def test_a_wrong_manifest_leaves_nothing_behind(root: Path) -> None:
    good = {"one.sst": manifest_entry(root, "one.sst")}
    for wrong_entry, why in (
        (manifest_entry(root, "gone.sst"), "gone.sst is not there"),
        (
            manifest_entry(root, "two.sst", size=101),
            "t/a/f: it should end behind its object, which has 100 bytes",
        ),
        (manifest_entry(root, "two.sst", offset=60, size=50), "behind its object"),
        (manifest_entry(root, "../../../etc/passwd"), "it has '..'"),
        ({"location": "/etc/passwd", "timestamp": 1}, "is in no repository that the catalog knows"),
        (manifest_entry(root, "two.sst", timestamp="soon"), "its timestamp is 'soon'"),
    ):
        with pytest.raises(UsageProblem, match="Nothing was imported") as raised:
            import_manifest(root, {"t": {"a": good | {"f": wrong_entry}}})
        assert why in raised.value.message
    many = {"t": {"a": good | {f"f{n}": manifest_entry(root, "gone.sst") for n in range(30)}}}
    with pytest.raises(UsageProblem, match="and 10 more"):
        import_manifest(root, many)
    with pytest.raises(UsageProblem, match=r"This is not a manifest of a snapshot: .*twice"):
        import_manifest(root, json.dumps({"t": {"a": good}}).removesuffix("}") + ', "t": {}}')
    with pytest.raises(UsageProblem, match="names no file"):
        import_manifest(root, {})
    assert stored_files(root) == []
    assert (
        select_rows(root, "SELECT * FROM backups") == select_rows(root, "SELECT * FROM snapshot_files") == []
    )


def test_backups_follow_each_other_in_time(root: Path) -> None:
    manifest = {"t": {"a": {"one.sst": manifest_entry(root, "one.sst")}}}
    import_manifest(root, manifest, taken_at=7000)
    files_before = stored_files(root)
    with pytest.raises(UsageProblem, match=r"is of 1970-01-01T00:00:01\.000Z, and the backups of yb already"):
        import_manifest(root, manifest)
    assert stored_files(root) == files_before
    assert import_manifest(root, manifest, taken_at=8000)["end_ts"] == 8000


def test_a_future_time_is_refused(root: Path) -> None:
    """No backup could follow one from the future."""
    now_ms = time.time_ns() // 1_000_000
    manifest = {"t": {"a": {"one.sst": manifest_entry(root, "one.sst", timestamp=now_ms + 3_600_000)}}}
    for options in ({}, {"taken_at": now_ms + 3_600_000}, {"taken_at": 1 << 60}):
        with pytest.raises(UsageProblem, match="yet to come") as raised:
            import_manifest(root, manifest, **options)
        assert "--taken-at" in raised.value.hint
    assert stored_files(root) == []
    assert import_manifest(root, manifest, taken_at=now_ms)["end_ts"] == now_ms


def test_a_source_of_topics_takes_no_manifest(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path / "backups", source="yb")
    backups.backup([[Record(0, 0)]])
    backups.flush()
    backups.storage.put("theirs/one.sst", b"x")
    manifest = {"t": {"a": {"one.sst": manifest_entry(backups.folder, "one.sst")}}}
    with pytest.raises(Refused, match="of another kind"):
        import_manifest(backups.folder, manifest)
    with pytest.raises(NotFound, match=r"There is no file .*none\.json"):
        run(
            ManifestRequest(destination=str(backups.folder), file=tmp_path / "none.json", source="yb"),
            reporter=quiet(),
        )
