"""Where jobs run: the Spark session, Java and its libraries, child processes, accounts."""

from pathlib import Path

#: The daemon of Python workers of a Spark on this machine, and the variable that names the socket of one that
#: was started ahead of its JVM. Here, since what the JVM starts shall load no more.
DAEMON = "lakebackup_jobs.lifecycle.tasks.worker_daemon"
AHEAD = "LAKEBACKUP_WORKERS"
#: Whether this is a clone of the repository, where `make` sets things up, and no package that pip installed.
IS_CLONE = (Path(__file__).parents[3] / "Makefile").is_file()
