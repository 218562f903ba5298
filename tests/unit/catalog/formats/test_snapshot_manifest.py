"""Manifests of snapshots for other tools: their content, reading them in pieces, refusals."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.rows import backup_row

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.formats.snapshots import manifest_read
from lakebackup.formats.snapshots.manifest_json import export_manifest, manifest_json
from lakebackup.formats.snapshots.manifest_read import Entry, read_manifest_json, resolve
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import Roots

ID = "20211124T013500Z-0000000{}"


class FakeCatalog(CatalogReader):
    """A reader of a catalog whose rows are in memory."""

    def __init__(self, tables: dict[str, list[dict[str, Any]]]) -> None:
        super().__init__("nowhere")
        for table, schema in ARROW_SCHEMAS.items():
            rows = pa.Table.from_pylist(tables.get(table, []), schema)
            self._bindings = {**self._bindings, f"raw_{table}": self._engine.keep_rows(rows)}

    def destinations(self) -> Roots:
        return Roots({"d": "file:///backups ü", "s": "s3://bucket/prod"})


def backup(number: int, **changes: Any) -> dict[str, Any]:
    name = ID.format(number)
    own = {"backup_id": name, "base": name, "source": "tablets", "source_kind": "snapshot"}
    return as_row(backup_row(number, **own | {"end_ts": 1_637_717_700_000 + number} | changes))


def file(number: int, scope: str, region: str, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "source": "tablets", "scope": scope, "region": region, "name": name, "role": "data",
        "backup_id": ID.format(number), "added_in": number, "bytes": 16, "mtime_ms": 1_637_717_000_000,
        "mode": 0o644, "links": 5, "sha256": "ab" * 32, "destination": "d", "position": 0,
        "path": f"tablets/snapshots/{ID.format(number)}/{scope}/{region}/{name}",
    } | changes  # fmt: skip


def test_a_manifest_has_the_files_of_the_snapshot_and_their_locations(tmp_path: Path) -> None:
    reader = FakeCatalog(
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
    manifest = json.loads(text)
    assert [(table, tablet, [*files]) for table in manifest for tablet, files in manifest[table].items()] == [
        ("t0", "a", ["in/000001.sst"]), ("t1", "a", ["000021.sst", "CURRENT"]), ("t1", "b", ['say "ü"\n']),
    ]  # fmt: skip
    assert manifest["t1"]["a"]["CURRENT"] == {
        "location": f"s3://bucket/prod/tablets/snapshots/{ID.format(2)}/t1/a/CURRENT",
        "timestamp": 1_637_717_000_000, "version": 1, "size": 16, "sha256": "ab" * 32,
        "mode": 0o644, "offset": 0, "role": "data",
    }  # fmt: skip
    assert manifest["t1"]["a"]["000021.sst"]["location"].startswith("file:///backups ü/tablets/snapshots/")
    odd = manifest["t1"]["b"]['say "ü"\n']
    assert (odd["version"], odd["size"], odd["sha256"]) == (5, None, None)
    # A second export writes the same text to the same path.
    assert export_manifest(reader, open_storage(str(tmp_path)), ID.format(2)) == path
    assert (tmp_path / path).read_text(encoding="utf-8") == text


def test_an_empty_snapshot_has_an_empty_manifest() -> None:
    assert json.loads("".join(manifest_json(FakeCatalog({"backups": [backup(1)]}), ID.format(1)))) == {}


def test_other_and_deleted_backups_have_no_manifest() -> None:
    reader = FakeCatalog({"backups": [backup(1, source_kind="kafka"), backup(2, state="deleted")]})
    with pytest.raises(UsageProblem, match="is not a backup of a snapshot"):
        next(manifest_json(reader, ID.format(1)))
    with pytest.raises(NotFound, match="was deleted"):
        next(manifest_json(reader, ID.format(2)))
    with pytest.raises(NotFound, match="does not exist"):
        next(manifest_json(reader, ID.format(3)))


DESTINATIONS = {"d": "file:///backups", "s": "s3://bucket/prod", "t": "s3://bucket/prod/tests"}


def entries(text: str) -> list[Entry | str]:
    return list(read_manifest_json(io.StringIO(text)))


def single_entry(**fields: Any) -> Entry | str:
    (entry,) = entries(json.dumps({"t": {"a": {"f": {"location": "x", "timestamp": 1} | fields}}}))
    return entry


def test_a_manifest_is_read_as_it_was_written() -> None:
    rows = [
        file(1, f"t{table}", tablet, f"{name:06d}.sst")
        for table in range(3)
        for tablet in ("a", 'b "ü"')
        for name in range(400)
    ]
    reader = FakeCatalog({"backups": [backup(1)], "snapshot_files": rows})
    text = "".join(manifest_json(reader, ID.format(1)))
    read_back = [entry for entry in entries(text) if isinstance(entry, Entry)]
    columns = ("scope", "region", "name", "mtime_ms", "links", "bytes", "sha256", "mode")
    assert {tuple(getattr(e, name) for name in columns) for e in read_back} == {
        tuple(row[name] for name in columns) for row in rows
    }


def test_a_manifest_is_read_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        '{ "t" : {"a":{},"b": {"f\\u00fc" : {"location": "x", "timestamp": 12, "more": [{}]} } } ,"u":{} }\n'
    )
    expected = entries(text)
    assert [entry.name for entry in expected if isinstance(entry, Entry)] == ["fü"]
    for size in range(1, 40):
        monkeypatch.setattr(manifest_read, "_READ_CHARS", size)
        assert entries(text) == expected


def test_a_file_needs_only_a_location_and_a_timestamp() -> None:
    entry = single_entry(version=3)
    assert isinstance(entry, Entry)
    assert (entry.scope, entry.region, entry.name, entry.location) == ("t", "a", "f", "x")
    assert (entry.mtime_ms, entry.links, entry.bytes, entry.mode, entry.role) == (1, 3, None, 0o644, "data")
    assert entries("{}") == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "'{' is expected in the manifest"),
        ("[]", "'{' is expected in the manifest"),
        ('{"t": 1}', "'{' is expected in table 't'"),
        ('{"t": {"a": {"f": "x"}}}', "an object that describes a file"),
        ('{"t": {"a": {"f": {"location": "x"', "delimiter"),
        ('{"t": {"a": {"f": {}', "'}', or ','|',' is expected"),
        ('{"t": {}, "t": {}}', "the manifest has 't' twice"),
        ('{"t": {"a": {}, "a": {}}}', "table 't' has 'a' twice"),
        ('{"t": {"a": {"f": {}, "f": {}}}}', "tablet 'a' has 'f' twice"),
        ('{"t": {"a": {"f": {"location": "x", "location": "y"}}}}', "a name occurs twice"),
        ('{"t": {"a": {"f": {"timestamp": NaN}}}}', "NaN is not a number"),
        ("{} {}", "the manifest has ended, and more follows"),
        ('{"t": {"a": {"f": {"x": ' + "[" * 60_000 + "]" * 60_000 + "}}}}", "recursion|over 65536|nested"),
        ('{"t": {"a": {"f": {"x": ' + "1" * 5_000 + "}}}}", "digits"),
        ('{"' + "t" * 2_000_000, "over 65536 characters"),
        ('{"t": {"a": {"f": {"x": "' + "y" * 2_000_000, "over 65536 characters"),
    ],
)
def test_an_invalid_manifest_is_reported_with_the_position(text: str, complaint: str) -> None:
    with pytest.raises(UsageProblem, match=complaint) as raised:
        entries(text)
    assert "(character " in raised.value.message
    assert len(raised.value.message) < 500


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"location": 5}, "its location is 5"),
        ({"location": ""}, "its location is ''"),
        ({"timestamp": "now"}, "its timestamp is 'now'"),
        ({"timestamp": True}, "its timestamp is True"),
        ({"timestamp": -1}, "its timestamp is -1"),
        ({"timestamp": 2**60}, "should be less than"),
        ({"timestamp": 1_637_717_000_000_000}, "should be less than 253402300800000"),
        ({"timestamp": 1.5}, "its timestamp is 1.5"),
        ({"version": 0}, "its version is 0"),
        ({"size": -1}, "its size is -1"),
        ({"size": "7"}, "its size is '7'"),
        ({"offset": None}, "its offset is None"),
        ({"mode": 0o20000}, "its mode is"),
        ({"sha256": "AB" * 32}, "[0-9a-f]{64}"),
        ({"role": "boss"}, "its role is 'boss'"),
        ({"role": ["data"]}, "its role is"),
    ],
)
def test_invalid_fields_of_a_file_are_reported(fields: dict[str, Any], complaint: str) -> None:
    problem = single_entry(**fields)
    assert isinstance(problem, str)
    assert problem.startswith("t/a/f: ")
    assert complaint in problem


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../b", "a//b", "", ".", "a\0b", "\ud800"])
def test_names_that_lead_out_of_the_folder_are_reported(name: str) -> None:
    for table, tablet, path in ((name, "a", "f"), ("t", name, "f"), ("t", "a", name)):
        (problem,) = entries(json.dumps({table: {tablet: {path: {"location": "x", "timestamp": 1}}}}))
        assert isinstance(problem, str)
        assert "cannot be the name of" in problem
    (problem,) = entries('{"a/b": {"a": {"f": {"location": "x", "timestamp": 1}}}}')
    assert problem == "'a/b' cannot be the name of a table: it has '/'"


@pytest.mark.parametrize(
    ("location", "resolved"),
    [
        ("file:///backups/a/b", ("d", "a/b")),
        ("/backups/a", ("d", "a")),
        ("a/b", ("d", "a/b")),
        ("s3://bucket/prod/a", ("s", "a")),
        ("s3a://bucket/prod/a", ("s", "a")),
        ("s3://bucket/prod/tests/a", ("t", "a")),
    ],
)
def test_a_location_is_resolved_to_a_destination(location: str, resolved: tuple[str, str]) -> None:
    assert resolve(location, DESTINATIONS, "d") == resolved


@pytest.mark.parametrize(
    "location",
    ["file:///elsewhere/a", "s3://bucket/other/a", "s3://bucket/prodigy", "/backups/../etc/passwd", "../a",
     "a/../../b", "file:///backups/", "s3://bucket/prod//a", "a..b", "https://host/a", "a\0", "//etc/passwd"],
)  # fmt: skip
def test_a_location_outside_all_destinations_is_reported(location: str) -> None:
    assert isinstance(resolve(location, DESTINATIONS, "d"), str)
