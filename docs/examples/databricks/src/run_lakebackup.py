"""Runs `lakebackup` with the parameters of the task, which fails if the command does."""

import os
import subprocess
import sys

PROGRAM = "from lakebackup_jobs.cli import command; command()"
ANOTHER_RUN_IN_PROGRESS = 8

# A process of its own, because the command ends its process: here that would be the interpreter of the task.
with subprocess.Popen(
    [sys.executable, "-c", PROGRAM, *sys.argv[1:]],
    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
) as process:
    for line in process.stdout or ():
        print(line, end="", flush=True)
if process.returncode not in (0, ANOTHER_RUN_IN_PROGRESS):
    raise RuntimeError(f"lakebackup ended with exit code {process.returncode}")
