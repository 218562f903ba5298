"""An S3 server whose certificate is of a private authority: one setting for Python and for Spark's JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.s3 import SecureS3Proxy

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.s3]


def lakebackup(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, whose JVM is its own."""
    return subprocess.run(
        [sys.executable, "-m", "lakebackup_jobs", *words],
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
        trusted = {**server.environment, "LAKEBACKUP_S3__CA_BUNDLE": str(server.certificate)}
        backup = ("backup", "snapshot", str(tmp_path / "tree"), "--source", "store", "--repo", repository)
        refused = lakebackup(*backup, **server.environment, LAKEBACKUP_S3__MAX_ATTEMPTS="1")
        assert (refused.returncode, "ca_bundle of [s3]" in refused.stderr) == (6, True), refused.stderr
        done = lakebackup(*backup, "--runner", "spark", **trusted)
        assert done.returncode == 0, done.stderr
        count = (
            "sql",
            "SELECT count(*) AS n FROM backups",
            "--engine",
            "spark",
            "--json",
            "--repo",
            repository,
        )
        counted = lakebackup(*count, **trusted)
        assert (counted.returncode, json.loads(counted.stdout or "{}")) == (0, {"n": 1}), counted.stderr
        # A trust store that a person names is used instead; this one does not have the authority.
        own = {
            "JAVA_TOOL_OPTIONS": "-Djavax.net.ssl.trustStore=/dev/null",
            "LAKEBACKUP_S3__MAX_ATTEMPTS": "1",
        }
        untrusted = lakebackup(*count, **trusted, **own)
        assert (untrusted.returncode, "its certificate is not trusted" in untrusted.stderr) == (6, True), (
            untrusted.stderr
        )
