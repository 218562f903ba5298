"""What the command line tells of snapshots: over real tables and objects, without Java."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.catalogs import backup_id
from tests.support.given_snapshots import MadeSnapshots
from tests.support.made_backups import MadeBackups

from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.cli.flags import completion


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("snapshots")
    MadeBackups(folder)
    made = MadeSnapshots(folder, CatalogWriter(None, str(folder)))
    made.take({"a": b"a", "b": b"bb", "CURRENT": b"1"})
    made.take({"a": b"a", "b": b"other", "c": b"ccc", "CURRENT": b"2"})
    return folder


def told(root: Path, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main([*arguments, "--repo", str(root)]) == code
    return "".join(capsys.readouterr())


def test_show_tells_tables(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(root, capsys, "show", backup_id(2), "--json"))
    assert found["tables"] == [
        {"scope": "t1", "regions": 1, "files": 4, "bytes": 10, "new_files": 3, "new_bytes": 9}
    ]
    assert "new in this backup: " in told(root, capsys, "show", backup_id(1))
    assert json.loads(told(root, capsys, "show", "latest", "--json"))["backup_id"] == backup_id(2)


def test_times_have_their_zone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("--json", "--csv"):
        assert told(root, capsys, "sql", "SELECT end_time FROM backups", form).strip('\n"}').endswith("Z")


def test_diff_tells_files(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(root, capsys, "diff", backup_id(1), backup_id(2), "--json").splitlines()
    assert [(row["change"], row["path"]) for row in map(json.loads, lines[1:])] == [
        ("added", "c"), ("changed", "CURRENT"), ("changed", "b"),
    ]  # fmt: skip
    said = told(root, capsys, "diff", backup_id(1), backup_id(2), "--records", code=5)
    assert "of another kind: snapshots, which have no topics" in said


def test_manifest_is_printed_or_written(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = json.loads(told(root, capsys, "catalog", "manifest", backup_id(1)))
    assert [*found["t1"]["a"]] == ["CURRENT", "a", "b"]
    out = tmp_path / "manifest.json"
    told(root, capsys, "catalog", "manifest", backup_id(1), "--out", str(out))
    assert json.loads(out.read_text()) == found
    assert "cannot be written" in told(
        root, capsys, "catalog", "manifest", backup_id(1), "--out", str(out), code=6
    )


def test_a_schedule_needs_the_folder(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(root, capsys, "policy", "set", "tablets", "--full", "daily 02:00", code=2)
    assert "does not say what to back up" in said


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    ("verb", "rest", "offered"),
    [
        ("show", "", ["latest", backup_id(2), backup_id(1), "tablets"]),
        ("show", backup_id(1), [backup_id(1)]),
        ("list", "--source t", ["tablets"]),
        ("restore snapshot", "--backup la", ["latest"]),
        ("restore topics", "", []),
    ],
)
def test_a_shell_completes_what_the_catalog_holds(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    verb: str, rest: str, offered: list[str], there: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(completion, "_LONGEST_S", 60.0)  # on a busy machine it would end this process
    words = f"lakebackup {verb} --repo {root if there else root / 'nothing'} {rest}"
    monkeypatch.setenv("_LAKEBACKUP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    with pytest.raises(SystemExit):
        main([])
    expected = offered if there else [one for one in offered if one == "latest"]
    said = capsys.readouterr()
    assert (said.out.split(), said.err) == (expected, "")


def test_a_drill_reports_no_result_of_the_restore_in_it(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A restore of damaged files says what it wrote; a drill of it is one row. Two seconds, no JVM."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a").write_text("content")
    repo = str(tmp_path / "repo")
    assert main(["backup", "snapshot", str(tmp_path / "src"), "--source", "src", "--repo", repo]) == 0
    (stored,) = (
        path
        for path in (tmp_path / "repo/src").rglob("*")
        if path.is_file() and path.read_bytes() == b"content"
    )
    stored.write_text("changed")
    capsys.readouterr()
    assert main(["drill", "src", "--repo", repo]) == 7
    printed = capsys.readouterr()
    assert printed.out.startswith("0 of 1 drill restored what was backed up")
    assert "Not what was backed up: src" in printed.err
    assert (
        main(["restore", "snapshot", "--source", "src", "--to", str(tmp_path / "out"), "--repo", repo]) == 7
    )
    assert capsys.readouterr().out.startswith("Restored")
