"""Spark starts in a thread beside the run. Tested in a process that has not imported PySpark."""

import subprocess
import sys

_PROGRAM = """
import sys, threading
from lakebackup.requests import Request
from lakebackup_jobs.lifecycle.workspace import Workspace

seen = []
spark = lambda: seen.append("pyspark.sql" in sys.modules)
work = Workspace(Request(destination=sys.argv[1]), "", None, spark)
assert "pyspark" not in sys.modules
work.start_spark().result()
assert seen == [True]
print("imported before")
"""


def test_pyspark_is_imported_before_a_thread_starts_spark(tmp_path):
    """Two threads that import PySpark at once get an incomplete module: `restore point` failed for that."""
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM, tmp_path], capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stdout) == (0, "imported before\n"), process.stderr
