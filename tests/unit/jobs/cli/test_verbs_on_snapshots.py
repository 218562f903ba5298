"""What commands show of snapshots, over real tables and objects, without Java."""

from __future__ import annotations

import json
import re
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
    snapshots = MadeSnapshots(folder, CatalogWriter(None, str(folder)))
    snapshots.back_up({"a": b"a", "b": b"bb", "CURRENT": b"1"})
    snapshots.back_up({"a": b"a", "b": b"other", "c": b"ccc", "CURRENT": b"2"})
    return folder


def output_of(root: Path, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main([*arguments, "--repo", str(root)]) == code
    return "".join(capsys.readouterr())


def test_show_lists_tables(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup = json.loads(output_of(root, capsys, "show", backup_id(2), "--json"))
    assert backup["tables"] == [
        {"scope": "t1", "regions": 1, "files": 4, "bytes": 10, "new_files": 3, "new_bytes": 9}
    ]
    shown = output_of(root, capsys, "show", backup_id(1))
    assert "new in this backup: " in shown
    assert re.search(r"stored +\d+ objects, ", shown)
    assert json.loads(output_of(root, capsys, "show", "latest", "--json"))["backup_id"] == backup_id(2)


def test_times_have_their_zone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("--json", "--csv"):
        assert (
            output_of(root, capsys, "sql", "SELECT end_time FROM backups", form).strip('\n"}').endswith("Z")
        )


def test_diff_lists_files(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output_of(root, capsys, "diff", backup_id(1), backup_id(2), "--json").splitlines()
    assert [(row["change"], row["path"]) for row in map(json.loads, lines[1:])] == [
        ("added", "c"), ("changed", "CURRENT"), ("changed", "b"),
    ]  # fmt: skip
    message = output_of(root, capsys, "diff", backup_id(1), backup_id(2), "--records", code=5)
    assert "of another kind: snapshots, which have no topics" in message


def test_manifest_is_printed_or_written(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest: dict[str, Any] = json.loads(output_of(root, capsys, "catalog", "manifest", backup_id(1)))
    assert [*manifest["t1"]["a"]] == ["CURRENT", "a", "b"]
    file = tmp_path / "manifest.json"
    output_of(root, capsys, "catalog", "manifest", backup_id(1), "--out", str(file))
    assert json.loads(file.read_text()) == manifest
    assert "cannot be written" in output_of(
        root, capsys, "catalog", "manifest", backup_id(1), "--out", str(file), code=6
    )


def test_a_schedule_needs_the_folder(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = output_of(root, capsys, "policy", "set", "tablets", "--full", "daily 02:00", code=2)
    assert "does not say what to back up" in message


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize(
    ("verb", "arguments", "offered"),
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
    verb: str, arguments: str, offered: list[str], exists: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(completion, "_LONGEST_S", 60.0)  # on a busy machine the limit would end this process
    words = f"lakebackup {verb} --repo {root if exists else root / 'nothing'} {arguments}"
    monkeypatch.setenv("_LAKEBACKUP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    with pytest.raises(SystemExit):
        main([])
    expected = offered if exists else [word for word in offered if word == "latest"]
    output = capsys.readouterr()
    assert (output.out.split(), output.err) == (expected, "")


def test_a_drill_does_not_print_the_result_of_its_restore(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A restore of damaged files reports what it wrote; a drill prints one row. Two seconds, no JVM."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a").write_text("content")
    repo = str(tmp_path / "repo")
    assert main(["backup", "snapshot", str(tmp_path / "src"), "--source", "src", "--repo", repo]) == 0
    (stored_file,) = (
        path
        for path in (tmp_path / "repo/src").rglob("*")
        if path.is_file() and path.read_bytes() == b"content"
    )
    stored_file.write_text("changed")
    capsys.readouterr()
    assert main(["drill", "src", "--repo", repo]) == 7
    printed = capsys.readouterr()
    assert printed.out.startswith("0 of 1 drill restored what was backed up")
    assert "Not what was backed up: src" in printed.err
    assert (
        main(["restore", "snapshot", "--source", "src", "--to", str(tmp_path / "out"), "--repo", repo]) == 7
    )
    assert capsys.readouterr().out.startswith("Restored")
