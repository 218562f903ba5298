"""A command's Python workers: their daemon imports modules while the JVM starts. A cold start: 5 s."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

_PROGRAM = """
import json, os
from pathlib import Path
from lakebackup_jobs.runtime import settings
from lakebackup_jobs.runtime.java import jvm

jvm.start(settings.spark_settings("local[1]"), sql=False, workers=True)
from lakebackup_jobs.runtime import session

def of_worker(_):
    daemon = Path(f"/proc/{os.getppid()}/cmdline").read_text().split(chr(0))
    return daemon[2:4], os.environ["SPARK_SIMPLIFIED_TRACEBACK"], os.environ.get("LAKEBACKUP_WORKERS")

context = session.warm_context()
(found,) = context.parallelize([0], 1).map(of_worker).collect()
sql = context._jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().isDefined()
print(json.dumps([found, sql]))
"""


def test_spark_uses_the_daemon_that_started_before_the_jvm(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (daemon, simplified, workers_variable), sql = json.loads(process.stdout.splitlines()[-1])
    assert daemon[0] == "lakebackup_jobs.lifecycle.tasks.worker_daemon"
    assert daemon[1].isdigit()  # the socket on which it waited
    assert (simplified, workers_variable) == ("1", None)  # the variables that the JVM gives to workers
    assert not sql
