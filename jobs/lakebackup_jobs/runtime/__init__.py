"""Where jobs run: the Spark session, Java and its libraries, child processes, accounts."""

from pathlib import Path

#: The module of the daemon of Spark's Python workers on this machine, and the variable that names the
#: socket of a daemon that was started before the JVM. They are here so that the daemon needs to load no more.
DAEMON = "lakebackup_jobs.lifecycle.tasks.worker_daemon"
AHEAD = "LAKEBACKUP_WORKERS"
#: Whether this is a clone of the repository, which `make` sets up, and not a package that pip installed.
IS_CLONE = (Path(__file__).parents[3] / "Makefile").is_file()
