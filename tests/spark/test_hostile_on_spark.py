"""No size that a SELECT asks for ends Spark's JVM; each gives an answer or a clear error."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.support.hostile import FOREIGN, GIVEN_UP, SECONDS, statements

pytestmark = [pytest.mark.spark, pytest.mark.long]
# A busy machine runs what stops a statement late.
_LATE_S = 60.0


@pytest.mark.timeout(3600)
def test_hostile_sizes_end_on_spark() -> None:
    """In a JVM of their own, which is to run out of memory. As on the command line, a statement that cannot
    be stopped ends the process, and only that."""
    asked = statements()
    found: dict[int, list[object]] = {}
    while len(found) < len(asked):
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.hostile", str(len(found))],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines, done.stderr[-2000:]
        found |= {number: rest for number, *rest in lines}
        last = lines[-1][1]
        assert last == GIVEN_UP or len(found) == len(asked), (asked[len(found)], done.stderr[-2000:])
    assert [(asked[number], rest) for number, rest in found.items() if rest[0] == FOREIGN] == []
    assert [(asked[n], rest) for n, rest in found.items() if float(str(rest[1])) > SECONDS + _LATE_S] == []
