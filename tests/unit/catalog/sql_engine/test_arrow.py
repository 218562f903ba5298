"""pyarrow starts without pandas, and a thread that needs pandas still gets it. A second, in a process."""

from __future__ import annotations

import subprocess
import sys

HIDDEN_WHILE_NEEDED = """
import sys
import threading

import pyarrow

from lakebackup.sql_engine import arrow

hidden, goes_on, make_array = threading.Event(), threading.Event(), pyarrow.array

def slow_array(values):
    hidden.set()
    goes_on.wait()
    return make_array(values)

pyarrow.array = slow_array
first = threading.Thread(target=arrow.leave_pandas_out)
first.start()
hidden.wait()
assert sys.modules["pandas"] is None
assert arrow._PANDAS.locked()
second = threading.Thread(target=arrow.load_pandas)
second.start()
goes_on.set()
second.join()
assert sys.modules["pandas"].DataFrame
"""


def test_a_thread_that_needs_pandas_waits_while_pyarrow_starts_without_it() -> None:
    """A session of Spark Connect said that pandas was not installed."""
    process = subprocess.run([sys.executable, "-c", HIDDEN_WHILE_NEEDED], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
