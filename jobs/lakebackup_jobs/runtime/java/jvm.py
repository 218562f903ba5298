"""The JVM that runs Spark: its command line, its start, its end. PySpark is not imported here: that takes
as long as the JVM's own start, and goes on beside it."""

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
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from lakebackup.config import is_secret
from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.runtime import AHEAD, DAEMON, IS_CLONE
from lakebackup_jobs.runtime.child import tail
from lakebackup_jobs.runtime.file_handles import too_many_files
from lakebackup_jobs.runtime.java import class_data
from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.java.jars import work_folder
from lakebackup_jobs.runtime.memory_limit import heap_mib

if TYPE_CHECKING:
    from collections.abc import Mapping

SPARK_HOME = Path(getattr(find_spec("pyspark"), "origin", None) or "pyspark").resolve().parent
#: Whether spark-submit started this process: its JVM runs already.
SUBMITTED = "PYSPARK_GATEWAY_PORT" in os.environ
# What Spark needs on Java 17 and later (org.apache.spark.launcher.JavaModuleOptions), but for the vectors of
# its machine learning, which make the start slower.
_OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
_FOR_SPARK = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
)

_LAST_LINES = 5  # of a log, in an error
# How Java and Spark begin the line that says what is wrong with an option or a setting.
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

# The fast compiler alone: tasks without SQL keep the JVM busy for moments.
_FOR_TASKS = ("-XX:TieredStopAtLevel=1",)
# SQL may pass millions of rows: what runs for seconds is optimised, a start is not (ten times the defaults).
_FOR_SQL = (
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
    """All jars, separated by ':'."""
    jars = sorted((SPARK_HOME / "jars").glob("*.jar"))
    return os.pathsep.join([settings["spark.driver.extraClassPath"], *map(str, jars)])


def command(
    settings: Mapping[str, str],
    *arguments: str,
    folder: Path,
    archive_to: Path | None = None,
    sql: bool = True,
) -> list[str]:
    """The command of a JVM that runs Spark with these settings.

    It is what the script spark-submit runs in the end, after a JVM of its own that only works it out. Secrets
    come by a file in `folder`, for this account alone: everyone on the machine sees a command line.
    `archive_to`: where the JVM writes the archive of its classes when it ends; `sql`: it runs SQL too.
    """
    jars = class_path(settings)
    # Of a cluster, if the user has such; behind the jars, where the archive still fits.
    folders = [os.environ[name] for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if os.environ.get(name)]
    secrets = {key: value for key, value in settings.items() if is_secret(key)}
    shown = {key: value for key, value in settings.items() if key not in secrets}
    return [
        str(java_home() / "bin" / "java"),
        "-cp",
        os.pathsep.join([jars, *folders]),
        f"-Xmx{settings.get('spark.driver.memory') or f'{heap_mib()}m'}",
        *_FOR_SPARK,
        *(_FOR_SQL if sql else _FOR_TASKS),
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
        *class_data.java_options(jars, archive_to, sql=sql),
        "org.apache.spark.deploy.SparkSubmit",
        *(word for key, value in shown.items() for word in ("--conf", f"{key}={value}")),
        *(["--properties-file", str(_properties_file(folder, secrets))] if secrets else []),
        *arguments,
    ]


def _properties_file(folder: Path, properties: Mapping[str, str]) -> Path:
    """A file of Java's properties that this account alone may read."""
    path = folder / "spark.properties"
    lines = [f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items()]
    path.touch(mode=0o600)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _escaped(text: str) -> str:
    escaped = "".join(_ESCAPES.get(character, character) for character in text)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def environment(master: str = "local") -> dict[str, str]:
    """What the JVM and the Python workers inherit; some of it is set for this process too."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("NUMBA_CACHE_DIR", str(work_folder() / "numba"))
    if master.startswith("local"):  # workers with another Python would miss our packages
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    found = dict(os.environ)
    # By default the C library keeps memory for each of the JVM's threads, eight times the number of cores.
    found.setdefault("MALLOC_ARENA_MAX", "2")
    # Workers start with `python -m`: they must import nothing from the folder where a person happens to be.
    found["PYTHONSAFEPATH"] = "1"
    # With it, workers read PySpark's sources from a zip archive, and compile them each time.
    found.pop("SPARK_HOME", None)
    return found


def log_folder() -> Path:
    """Where the logs of JVMs are."""
    folder = work_folder() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _new_log() -> Path:
    """The file that a JVM writes to which starts now."""
    log = log_folder() / "spark.log"
    if log.exists() and log.stat().st_size > 10 << 20:
        log.replace(log.with_suffix(".log.old"))
    return log


class Jvm:
    """A JVM that starts, and beside it the daemon of its Python workers if they will be needed. Both end with
    this process, whose end of a pipe each watches."""

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
        self._answer = self._folder / "gateway"
        self._address: tuple[int, str] | None = None
        self._daemon: subprocess.Popen[bytes] | None = None
        variables = environment(settings["spark.master"])
        variables |= {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer), "SPARK_CONNECT_MODE": "0"}
        # What it writes while it starts no one can act on; a person's terminal stays clean.
        with self.log.open("ab") as output, socket.socket(socket.AF_UNIX) as listener:
            ahead = workers and settings.get("spark.python.daemon.module") == DAEMON
            if ahead and _listens(listener, self._folder / "workers"):
                variables[AHEAD] = listener.getsockname()
            try:
                self.process = subprocess.Popen(
                    command(settings, "pyspark-shell", folder=self._folder, archive_to=archive_to, sql=sql),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    env=variables,
                    start_new_session=True,  # this process alone decides what Ctrl-C ends
                )
                if AHEAD in variables:
                    self._daemon = _start_daemon(listener, variables, output)
            except OSError as cause:
                self._forget()
                raise EnvironmentProblem(f"Java does not start: {cause}", hint=HINT) from cause
        atexit.register(self._end_unused)

    def address(self) -> tuple[int, str]:
        """Port and secret of its gateway, when it is up. Raises EnvironmentProblem."""
        while self._address is None:
            if self.process.poll() is not None:
                self.end(1)
                log_end = tail(self.log, since=self.log_start)
                raise too_many_files(log_end) or EnvironmentProblem(
                    f"Spark did not start: {complaint(self)}", hint=HINT
                )
            if self._answer.exists():
                self._address = read_address(self._answer)
                self._answer.unlink()
                if self._daemon is None:
                    self._forget()
            else:
                time.sleep(0.01)
        return self._address

    def _end_unused(self) -> None:
        """End it with a command that failed before it used Spark."""
        if self._address is None:
            self.end(1)
        self._forget()

    def end(self, seconds: float) -> None:
        """End it and wait for its end; it takes the Python workers with it."""
        if self._address is None:  # it does not watch the pipe yet
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
        self._forget()

    def _forget(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def complaint(jvm: Jvm) -> str:
    """What a JVM that did not start says against its settings; else the end of its log."""
    log = jvm.log
    lines = list(map(str.strip, tail(log, since=jvm.log_start).splitlines()))
    told = next((match["told"] or match["jvm"] for match in map(_COMPLAINT.match, lines) if match), "")
    end = "\n".join(lines[-_LAST_LINES:])
    return f"{told.rstrip('.')}." if told else f"its JVM ended. End of {log}:\n{end}"


def _listens(listener: socket.socket, path: Path) -> bool:
    try:
        listener.bind(str(path))
    except OSError:  # its name is too long
        return False
    listener.listen(1)
    return True


def _start_daemon(
    listener: socket.socket, variables: Mapping[str, str], output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """The daemon of Python workers, which imports while the JVM starts, and then waits for its call."""
    seed = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}  # as PySpark has it in workers
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
    """Port and secret of a gateway, which its JVM wrote to a file."""
    with file.open("rb") as stream:
        port = int.from_bytes(stream.read(4), "big")
        return port, stream.read(int.from_bytes(stream.read(4), "big")).decode()


_running: Jvm | None = None
_starting = threading.Lock()


def start(
    settings: Mapping[str, str], *, archive_to: Path | None = None, sql: bool = True, workers: bool = False
) -> Jvm:
    """The JVM of this process, which is started once; for SQL, and with a daemon of Python workers beside it.

    Raises EnvironmentProblem.
    """
    global _running
    with _starting:
        if _running is None:
            _running = Jvm(settings, archive_to=archive_to, sql=sql, workers=workers)
    return _running


def lost() -> EnvironmentProblem | None:
    """Why Spark does not answer: its JVM ended by itself. None: it runs, or none was started."""
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
    """End the JVM that this process started, if it did. After that the process can use Spark no more."""
    if _running is not None:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would report each closed connection
        # A thread of py4j tells the JVM of objects that are gone, and reports a lost connection as nobody's.
        logging.getLogger().addFilter(lambda record: record.msg != "Exception while sending command.")
        atexit.unregister(class_data.make_later)  # whoever ends it does not want more to start
        with suppress(OSError):  # the pipe may be broken
            _running.end(seconds)
