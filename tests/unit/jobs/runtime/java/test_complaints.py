"""The message for a JVM that did not start: the sentence of Java or Spark, without a stack trace."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakebackup_jobs.runtime.java import jvm


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        (
            "Invalid maximum heap size: -Xmxlots\nError: Could not create the Java Virtual Machine.\n",
            "Invalid maximum heap size: -Xmxlots.",
        ),
        (
            'Exception in thread "main" org.apache.SparkException: Master must be yarn\n\tat a.B(C:1)\n',
            "Master must be yarn.",
        ),
        ("WARNING: incubator modules\n", "its JVM ended. End of {log}:\nWARNING: incubator modules"),
    ],
)
def test_a_jvm_that_did_not_start_says_why_without_a_stack(log: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "spark.log"
    file.write_text(log, "utf-8")
    started: Any = SimpleNamespace(log=file, log_start=0)
    assert jvm.complaint(started) == complaint.format(log=file)
