"""The archive of Spark's classes: the JVM starts from it, and without it. A second or two each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lakebackup_jobs.runtime import class_data, jvm
from lakebackup_jobs.runtime.settings import spark_settings

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def archive() -> Path:
    """This machine's archive, which `make setup` has made."""
    subprocess.run([sys.executable, "-m", "lakebackup_jobs.runtime.class_data_maker"], check=True)
    found = class_data.archive(jvm.class_path(spark_settings()))
    assert class_data.size(found) > 50 << 20
    return found


def shared_classes(archive: Path, log: Path) -> int:
    """How many classes a JVM with our settings takes from it. It starts, and says nothing of the archive."""
    java, *words = jvm.command(spark_settings(), "--version")
    words = [f"-XX:SharedArchiveFile={archive}" if "SharedArchiveFile" in word else word for word in words]
    done = subprocess.run(
        [java, f"-Xlog:class+load:file={log}", *words],
        env=jvm.environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "version 4" in said
    assert not [line for line in said.splitlines() if "archive" in line.lower()]
    return log.read_text("utf-8").count("shared objects file (top)")


def test_the_jvm_takes_sparks_classes_from_it(archive: Path, tmp_path: Path) -> None:
    assert shared_classes(archive, tmp_path / "log") > 100


@pytest.mark.parametrize("left", [0.5, 0.0001], ids=["half", "no header"])
def test_a_truncated_archive_is_ignored(left: float, archive: Path, tmp_path: Path) -> None:
    torn = tmp_path / archive.name
    with archive.open("rb") as whole:
        torn.write_bytes(whole.read(int(archive.stat().st_size * left)))
    assert shared_classes(torn, tmp_path / "log") == 0
