"""An S3 server with a certificate of a private authority: one setting for Python and for Spark's JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.s3 import SecureS3Proxy

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.s3]


# Reads a table in Spark's JVM: the commands read small tables in Python.
READ = """
import sys
from lakebackup.sql_engine.failures import task_errors
from lakebackup_jobs.runtime.session import spark_session
spark = spark_session(extra={"spark.master": "local[1]"})
with task_errors():
    print(spark.read.format("delta").load(sys.argv[1]).count())
"""


def python(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process, which starts its own JVM."""
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_one_setting_reaches_python_and_the_jvm(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_bytes(b"one")
    with SecureS3Proxy(tmp_path / "secure") as server:
        repository = f"s3://{server.bucket()}/kept"
        plain = {**server.environment, "LAKEBACKUP_S3__MAX_ATTEMPTS": "1"}
        trusted = {**server.environment, "LAKEBACKUP_S3__CA_BUNDLE": str(server.certificate)}
        backup = ("backup", "snapshot", str(tmp_path / "tree"), "--source", "store", "--repo", repository)
        command = ("-m", "lakebackup_jobs", *backup, "--runner", "spark")
        refused = python(*command, **plain)
        assert (refused.returncode, "ca_bundle of [s3]" in refused.stderr) == (6, True), refused.stderr
        result = python(*command, **trusted)
        assert result.returncode == 0, result.stderr
        read = ("-c", READ, f"{repository}/catalog/backups")
        counted = python(*read, **trusted)
        assert counted.stdout == "1\n", counted.stderr[-2000:]
        untrusted = python(*read, **plain)
        assert "its certificate is not trusted" in untrusted.stderr, untrusted.stderr[-2000:]
