"""A command's Python workers: their daemon imports beside the start of the JVM. A cold start: 5 s."""

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


def test_the_daemon_that_started_ahead_of_the_jvm_is_sparks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (daemon, simplified, ahead), sql = json.loads(done.stdout.splitlines()[-1])
    assert daemon[0] == "lakebackup_jobs.lifecycle.tasks.worker_daemon"
    assert daemon[1].isdigit()  # the socket where it waited
    assert (simplified, ahead) == ("1", None)  # what the JVM gives to workers
    assert not sql
