"""Commands on a machine without Java and with an empty home, each in a process of its own.

Takes ten seconds: only here a first backup, a query and a restore are tried where no JVM can start.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lakebackup_jobs", *words],
        capture_output=True, text=True, check=False, timeout=120, cwd=home,
        env={"PATH": "/nowhere", "HOME": str(home), "LAKEBACKUP_REPO": str(home / "repo")},
    )  # fmt: skip


def test_a_small_first_backup_is_taken_queried_and_restored(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.txt").write_text("content")
    for words in (
        ("backup", "snapshot", "src", "--source", "src"),
        ("sql", "SELECT scope, bytes FROM files", "--csv"),
        ("verify",),
        ("restore", "snapshot", "--source", "src", "--to", "out"),
    ):
        process = run(tmp_path, *words)
        assert (process.returncode, process.stderr) == (0, ""), words
    assert [path.read_text() for path in (tmp_path / "out").rglob("a.txt")] == ["content"]


def test_a_command_that_needs_spark_writes_and_fetches_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        '{"backup_id": "a1", "source": "s", "end_ts": 1, "state": "complete", "kind": "full"}\n'
    )
    paths_before = sorted(tmp_path.rglob("*"))
    process = run(tmp_path, "catalog", "import", "--backups", "rows.jsonl", "--source-kind", "restic")
    assert process.returncode == 6
    assert process.stderr.startswith("error: No Java found")
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == paths_before
