"""Spark's errors are shortened to their causes."""

from __future__ import annotations

import pytest

from lakebackup.sql_engine.failures import cause_in

PYTHON = """[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure.
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/app/worker.py", line 2044, in main
    process()
    ~~~~~~~^^
  File "/app/debezium_decoder.py", line 7, in decode
    rows.to_numpy()
{error}

{stack}
Driver stacktrace:
{stack}
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/app/worker.py", line 2044, in main
    process()
{error}

{stack}
\t... 1 more
"""
JAVA = """An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted
{stack}
Caused by: java.io.IOException: No space left on device
{stack}
"""
STACK = "\n".join(["\tat org.apache.spark.scheduler.DAGScheduler.runJob(DAGScheduler.scala:1009)"] * 100)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (PYTHON.format(error="a.ArrowInvalid: no zero copy", stack=STACK), "a.ArrowInvalid: no zero copy"),
        (PYTHON.format(error="ValueError: one\nand two", stack=STACK), "ValueError: one\nand two"),
        (JAVA.format(stack=STACK), "No space left on device"),
        ("something else", "something else"),
    ],
)  # fmt: skip
def test_the_cause_is_found_below_the_stack(text: str, cause: str) -> None:
    assert cause_in(RuntimeError(text)) == cause


def test_a_cause_of_any_length_is_shortened() -> None:
    assert len(cause_in(RuntimeError("x" * 10_000))) == 2000
