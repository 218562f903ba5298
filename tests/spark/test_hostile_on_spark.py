"""No size in a SELECT ends Spark's JVM; each statement returns an answer or a clear error."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.support.hostile import FOREIGN, GIVEN_UP, SECONDS, statements

pytestmark = [pytest.mark.spark, pytest.mark.long]
# On a busy machine, the code that stops a statement runs late.
_LATE_S = 60.0


@pytest.mark.timeout(3600)
def test_hostile_sizes_end_on_spark() -> None:
    """In a separate JVM, which is expected to run out of memory. As on the command line, a statement that
    cannot be stopped ends the process, and only the process."""
    selects = statements()
    results: dict[int, list[object]] = {}
    while len(results) < len(selects):
        process = subprocess.run(
            [sys.executable, "-m", "tests.support.hostile", str(len(results))],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        lines = [json.loads(line) for line in process.stdout.splitlines()]
        assert lines, process.stderr[-2000:]
        results |= {number: result for number, *result in lines}
        last = lines[-1][1]
        assert last == GIVEN_UP or len(results) == len(selects), (
            selects[len(results)],
            process.stderr[-2000:],
        )
    assert [(selects[number], result) for number, result in results.items() if result[0] == FOREIGN] == []
    assert [
        (selects[n], result) for n, result in results.items() if float(str(result[1])) > SECONDS + _LATE_S
    ] == []
