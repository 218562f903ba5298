"""Starts and ends the JVM that runs Spark.

PySpark is not imported here: importing it takes as long as the JVM's start, and runs at the same time.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from lakebackup.config import is_secret
from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.runtime import AHEAD, DAEMON, IS_CLONE
from lakebackup_jobs.runtime.child import tail
from lakebackup_jobs.runtime.file_handles import too_many_files
from lakebackup_jobs.runtime.java import class_data
from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.java.jars import work_folder
from lakebackup_jobs.runtime.memory_limit import heap_mib

SPARK_HOME = Path(getattr(find_spec("pyspark"), "origin", None) or "pyspark").resolve().parent
#: Whether spark-submit started this process, so that its JVM is running already.
SUBMITTED = "PYSPARK_GATEWAY_PORT" in os.environ
# The packages that Spark needs on Java 17 and later (org.apache.spark.launcher.JavaModuleOptions), without
# the vectors of its machine learning, which slow down the start.
_OPENED_PACKAGES = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
_SPARK_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED_PACKAGES),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
)

_LOG_LINES = 5  # last lines of a log in an error
# How lines begin in which Java and Spark report a wrong option or setting.
_COMPLAINT = re.compile(
    r"(?:Error: (?!Could not create|A fatal)|Exception in thread \S+ |Caused by: "
    r"|(?:\w+\.)+\w+(?:Exception|Error): )(?:(?:\w+\.)+[\w$]+: )?(?P<told>\S.*)"
    r"|(?P<jvm>Invalid \S.*|Unrecognized .*)"
)
HINT = (
    "Check --master, --spark-conf and [spark] of lakebackup.toml. `make setup` checks Java and the jars."
    if IS_CLONE
    else "Check --master, --spark-conf, [spark] of lakebackup.toml, and that JAVA_HOME is a JDK 17 or 21."
)

# Uses only the fast compiler, since tasks without SQL run briefly in the JVM.
_TASK_OPTIONS = ("-XX:TieredStopAtLevel=1",)
# SQL may process millions of rows. Code that runs for seconds is optimised, but not the code of the start:
# the thresholds are ten times the defaults.
_SQL_OPTIONS = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)


_ESCAPES = {
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "=": "\\=",
    ":": "\\:",
    "#": "\\#",
    "!": "\\!",
}


def class_path(settings: Mapping[str, str]) -> str:
    """Return the paths of all jars of lakebackup and Spark, separated by ':'."""
    jars = sorted((SPARK_HOME / "jars").glob("*.jar"))
    return os.pathsep.join([settings["spark.driver.extraClassPath"], *map(str, jars)])


def command(
    settings: Mapping[str, str],
    *arguments: str,
    folder: Path,
    archive_to: Path | None = None,
    sql: bool = True,
) -> list[str]:
    """Return the command of a JVM that runs Spark with these settings.

    It is the command that the script spark-submit runs, after another JVM that only computes it. Secrets are
    passed in a file in `folder` that only this account may read, since everyone on the machine sees a command
    line. `archive_to`: where the JVM writes the archive of its classes when it ends. `sql`: whether it runs
    SQL too.
    """
    jars = class_path(settings)
    # The folders of a cluster's configuration, if there are any. They follow the jars, since the archive of
    # classes fits only a class path that begins with its own.
    folders = [os.environ[name] for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if os.environ.get(name)]
    secrets = {key: value for key, value in settings.items() if is_secret(key)}
    public_settings = {key: value for key, value in settings.items() if key not in secrets}
    return [
        str(java_home() / "bin" / "java"),
        "-cp",
        os.pathsep.join([jars, *folders]),
        f"-Xmx{settings.get('spark.driver.memory') or f'{heap_mib()}m'}",
        *_SPARK_OPTIONS,
        *(_SQL_OPTIONS if sql else _TASK_OPTIONS),
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
        *class_data.java_options(jars, archive_to, sql=sql),
        "org.apache.spark.deploy.SparkSubmit",
        *(word for key, value in public_settings.items() for word in ("--conf", f"{key}={value}")),
        *(["--properties-file", str(_properties_file(folder, secrets))] if secrets else []),
        *arguments,
    ]


def _properties_file(folder: Path, properties: Mapping[str, str]) -> Path:
    """Write a file of Java properties that only this account may read; returns its path."""
    path = folder / "spark.properties"
    lines = [f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items()]
    path.touch(mode=0o600)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _escaped(text: str) -> str:
    escaped = "".join(_ESCAPES.get(character, character) for character in text)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def environment(master: str = "local") -> dict[str, str]:
    """Return the environment of the JVM and the Python workers. Also sets some variables of this process."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("NUMBA_CACHE_DIR", str(work_folder() / "numba"))
    if master.startswith("local"):  # another Python would lack lakebackup's packages
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    variables = dict(os.environ)
    # By default the C library keeps memory arenas for the JVM's threads, up to eight for each core.
    variables.setdefault("MALLOC_ARENA_MAX", "2")
    # Workers start with `python -m`, and must not import anything from the user's current folder.
    variables["PYTHONSAFEPATH"] = "1"
    # With SPARK_HOME, workers would read PySpark's sources from a zip archive and compile them each time.
    variables.pop("SPARK_HOME", None)
    return variables


def log_folder() -> Path:
    """Return the folder of the logs of JVMs."""
    folder = work_folder() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _new_log() -> Path:
    """Return the file for the output of a JVM that starts now. A file above 10 MiB is renamed first."""
    log = log_folder() / "spark.log"
    if log.exists() and log.stat().st_size > 10 << 20:
        log.replace(log.with_suffix(".log.old"))
    return log


class Jvm:
    """A JVM of this process and, if `workers`, the daemon of its Python workers, started at the same time.

    Each of them reads a pipe that this process holds open, and ends when the pipe does, so with this process.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        archive_to: Path | None = None,
        sql: bool = True,
        workers: bool = False,
    ) -> None:
        self.log = _new_log()
        self.log_start = self.log.stat().st_size if self.log.exists() else 0
        self._folder = Path(tempfile.mkdtemp(prefix="lakebackup-jvm-"))
        self._address_file = self._folder / "gateway"
        self._address: tuple[int, str] | None = None
        self._daemon: subprocess.Popen[bytes] | None = None
        variables = environment(settings["spark.master"])
        variables |= {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._address_file), "SPARK_CONNECT_MODE": "0"}
        # The output goes to a log: a user can do nothing about what the JVM writes while it starts.
        with self.log.open("ab") as output, socket.socket(socket.AF_UNIX) as listener:
            starts_daemon = workers and settings.get("spark.python.daemon.module") == DAEMON
            if starts_daemon and _listen(listener, self._folder / "workers"):
                variables[AHEAD] = listener.getsockname()
            try:
                self.process = subprocess.Popen(
                    command(settings, "pyspark-shell", folder=self._folder, archive_to=archive_to, sql=sql),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    env=variables,
                    start_new_session=True,  # Ctrl-C reaches this process only, which decides what ends
                )
                if AHEAD in variables:
                    self._daemon = _start_daemon(listener, variables, output)
            except OSError as cause:
                self._delete_folder()
                raise EnvironmentProblem(f"Java does not start: {cause}", hint=HINT) from cause
        atexit.register(self._end_unused)

    def address(self) -> tuple[int, str]:
        """Wait until the gateway is ready; returns its port and secret. Raises EnvironmentProblem."""
        while self._address is None:
            if self.process.poll() is not None:
                self.end(1)
                log_end = tail(self.log, since=self.log_start)
                raise too_many_files(log_end) or EnvironmentProblem(
                    f"Spark did not start: {complaint(self)}", hint=HINT
                )
            if self._address_file.exists():
                self._address = read_address(self._address_file)
                self._address_file.unlink()
                if self._daemon is None:
                    self._delete_folder()
            else:
                time.sleep(0.01)
        return self._address

    def _end_unused(self) -> None:
        """End the JVM if the process ends before it used Spark; delete the folder."""
        if self._address is None:
            self.end(1)
        self._delete_folder()

    def end(self, seconds: float) -> None:
        """End the JVM and its Python workers. Waits up to `seconds` for the JVM's end, then kills it."""
        if self._address is None:  # it does not read the pipe yet
            self.process.terminate()
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._daemon and self._daemon.stdin:
            self._daemon.stdin.close()
        self._delete_folder()

    def _delete_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def complaint(jvm: Jvm) -> str:
    """Return the message in which a JVM that did not start rejects its settings, else the end of its log."""
    log = jvm.log
    lines = list(map(str.strip, tail(log, since=jvm.log_start).splitlines()))
    message = next((match["told"] or match["jvm"] for match in map(_COMPLAINT.match, lines) if match), "")
    end = "\n".join(lines[-_LOG_LINES:])
    return f"{message.rstrip('.')}." if message else f"its JVM ended. End of {log}:\n{end}"


def _listen(listener: socket.socket, path: Path) -> bool:
    try:
        listener.bind(str(path))
    except OSError:  # the path is too long for a socket
        return False
    listener.listen(1)
    return True


def _start_daemon(
    listener: socket.socket, variables: Mapping[str, str], output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start the daemon of Python workers. It imports modules while the JVM starts, then waits for the JVM."""
    seed = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}  # PySpark's default for workers
    return subprocess.Popen(
        [sys.executable, "-m", DAEMON, str(listener.fileno())],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        env={**variables, **seed},
        pass_fds=[listener.fileno()],
        start_new_session=True,
    )


def read_address(file: Path) -> tuple[int, str]:
    """Read port and secret of a gateway from the file that its JVM wrote."""
    with file.open("rb") as stream:
        port = int.from_bytes(stream.read(4), "big")
        return port, stream.read(int.from_bytes(stream.read(4), "big")).decode()


_running: Jvm | None = None
_starting = threading.Lock()


def start(
    settings: Mapping[str, str], *, archive_to: Path | None = None, sql: bool = True, workers: bool = False
) -> Jvm:
    """Return the JVM of this process, which the first call starts. The arguments are those of `Jvm`.

    Raises EnvironmentProblem.
    """
    global _running
    with _starting:
        if _running is None:
            _running = Jvm(settings, archive_to=archive_to, sql=sql, workers=workers)
    return _running


def lost() -> EnvironmentProblem | None:
    """Return the error to report if the JVM ended unexpectedly. None: it is running, or none was started."""
    if _running is None or _running.process.poll() is None:
        return None
    log = _running.log
    return too_many_files(tail(log, since=_running.log_start)) or EnvironmentProblem(
        f"Spark's JVM was killed or ran out of memory (exit status {_running.process.returncode}). "
        f"End of {log}:\n{tail(log, 5)}",
        hint="Nothing unfinished is visible: run it again. `dmesg` shows whether memory ran out; "
        "--spark-conf spark.driver.memory=SIZE sets what the JVM takes.",
    )


def end(seconds: float = 5) -> None:
    """End this process's JVM, if there is one. After that, the process cannot use Spark any more."""
    if _running is not None:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would report each closed connection
        # A thread of py4j reports deleted objects to the JVM. It logs a lost connection to the root logger.
        logging.getLogger().addFilter(lambda record: record.msg != "Exception while sending command.")
        atexit.unregister(class_data.make_later)  # nothing else shall start now
        with suppress(OSError):  # the pipe may be broken
            _running.end(seconds)
