"""The JVM starts from an archive of Spark's classes. A second or two."""

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
    """This machine's archives, which `make setup` has made."""
    subprocess.run([sys.executable, "-m", "lakebackup_jobs.runtime.class_data_maker"], check=True)
    for sql in (True, False):
        found = class_data.archive(jvm.class_path(spark_settings()), sql=sql)
        assert class_data.size(found) > 50 << 20


def shared_classes(log: Path, *, sql: bool) -> int:
    """How many classes a JVM with our settings takes from it. It starts, and says nothing of the archive."""
    java, *words = jvm.command(spark_settings(), "--version", sql=sql, folder=log.parent)
    done = subprocess.run(
        [java, f"-Xlog:class+load:file={log}", *words],
        env=jvm.environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "version 4" in said
    assert not [line for line in said.splitlines() if "archive" in line.lower()]
    return log.read_text("utf-8").count("shared objects file (top)")


@pytest.mark.long
@pytest.mark.usefixtures("archive")
@pytest.mark.parametrize("sql", [True, False])
def test_the_jvm_takes_sparks_classes_from_it(sql: bool, tmp_path: Path) -> None:
    assert shared_classes(tmp_path / "log", sql=sql) > 100
