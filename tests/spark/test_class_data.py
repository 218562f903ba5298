"""The JVM starts from an archive of Spark's classes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lakebackup_jobs.runtime.java import class_data, jvm
from lakebackup_jobs.runtime.settings import spark_settings

pytestmark = pytest.mark.spark


@pytest.fixture
def archive() -> None:
    """Make this machine's archives as `make setup` does."""
    subprocess.run([sys.executable, "-m", "lakebackup_jobs.runtime.class_data_maker"], check=True)
    for sql in (True, False):
        archive_file = class_data.archive(jvm.class_path(spark_settings()), sql=sql)
        assert class_data.size(archive_file) > 50 << 20


def shared_classes(log: Path, *, sql: bool) -> int:
    """Start a JVM with lakebackup's settings; returns how many classes it loads from the archive.

    Fails if the JVM prints anything about the archive.
    """
    java, *words = jvm.command(spark_settings(), "--version", sql=sql, folder=log.parent)
    process = subprocess.run(
        [java, f"-Xlog:class+load:file={log}", *words],
        env=jvm.environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    output = process.stdout + process.stderr
    assert process.returncode == 0, output
    assert "version 4" in output
    assert not [line for line in output.splitlines() if "archive" in line.lower()]
    return log.read_text("utf-8").count("shared objects file (top)")


@pytest.mark.long
@pytest.mark.usefixtures("archive")
@pytest.mark.parametrize("sql", [True, False])
def test_the_jvm_loads_sparks_classes_from_the_archive(sql: bool, tmp_path: Path) -> None:
    assert shared_classes(tmp_path / "log", sql=sql) > 100
