"""Closed, full and abandoned standard streams: real processes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakebackup.errors import EnvironmentProblem, OutputLost
from lakebackup_jobs.cli.output.streams import MessageStream, ResultStream
from lakebackup_jobs.runtime.file_handles import too_many_files

FULL = Path("/dev/full")


def run(redirects: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = f'"$@" {redirects}'
    return subprocess.run(
        ["bash", "-c", command, "-", sys.executable, "-m", "lakebackup_jobs", *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("redirects", [">&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_error(redirects: str) -> None:
    process = run(redirects, "--version")
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")
def test_a_full_output_is_an_error_and_full_messages_are_lost() -> None:
    process = run("> /dev/full", "--version")
    assert process.returncode == 6
    assert process.stderr.startswith("error: Standard output takes no more: No space left on device.")
    assert run("2> /dev/full", "list", "--repo", "/nowhere/at-all").returncode == 3


def test_a_reader_that_left_is_no_error() -> None:
    process = run("| true; exit ${PIPESTATUS[0]}", "--help")
    assert (process.returncode, process.stderr) == (0, "")


def test_a_stream_keeps_the_failure_of_its_output() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with ResultStream(os.fdopen(writer, "wb", buffering=0), write_through=True) as stream:
        for _ in range(2):
            with pytest.raises(BrokenPipeError):
                stream.write("x")
        assert stream.reader_left
        stream._failure = None  # so that it can be closed


def test_messages_without_a_reader_are_lost() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with MessageStream(os.fdopen(writer, "wb", buffering=0), write_through=True) as stream:
        stream.write("x")
        stream.flush()


def test_the_limit_of_open_files_is_named_for_every_form_of_the_error() -> None:
    cause = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    error = EnvironmentProblem("Cannot read x.")
    error.__cause__ = cause
    for failure in (cause, error, "java.net.SocketException: Too many open files"):
        problem = too_many_files(failure)
        assert problem is not None
        assert "ulimit -n" in problem.hint
    assert too_many_files(OutputLost("No space left on device")) is None
