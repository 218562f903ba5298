"""Fetches JVM libraries at pinned versions, checks them by sha256, and keeps them in a cache for offline use.

jars.toml names every jar, transitive ones included, so no version is resolved at run time. Apache Ivy, which
PySpark contains, fetches them from its default repository or from the mirror in LAKEBACKUP_MAVEN_URL.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import re
import stat
import subprocess
import tempfile
import threading
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from lakebackup.errors import EnvironmentProblem
from lakebackup.storage.private import home_folder
from lakebackup_jobs.runtime import IS_CLONE
from lakebackup_jobs.runtime.java import downloads
from lakebackup_jobs.runtime.java.home import java_home

_IVY_CACHE = "ivy"
_ANNOUNCE_INTERVAL_S = 0.25
JarSet = Literal["spark", "kafka", "s3proxy", "debezium", "postgres-x86_64", "postgres-aarch64"]


@dataclass(frozen=True)
class Jar:
    """One pinned library."""

    group: str
    name: str
    version: str
    sha256: str
    classifier: str = ""

    @property
    def file(self) -> str:
        """The file's name in the cache."""
        return f"{self.name}-{self.version}{self.classifier and '-'}{self.classifier}.jar"

    def is_good(self, folder: Path) -> bool:
        """Return whether the file is in the folder and has the pinned sha256."""
        try:
            file_stat = (folder / self.file).stat()
            return _sha256(folder / self.file, file_stat.st_size, file_stat.st_mtime_ns) == self.sha256
        except OSError:
            return False


@cache  # a command calls this several times
def _sha256(path: Path, _size: int, _mtime_ns: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def pinned(jar_set: JarSet) -> list[Jar]:
    """Return the libraries of one set, as jars.toml lists them."""
    jars = []
    for coordinates, sha256 in _pinned_sets()[jar_set].items():
        group, name, version, *classifier = coordinates.split(":")
        jars.append(Jar(group, name, version, sha256, *classifier))
    return jars


def pinned_bytes(jar_set: JarSet) -> int | None:
    """Return the total size of one set's libraries in bytes; None if jars.toml does not contain it."""
    size: int | None = _pinned_sets()["bytes"].get(jar_set)
    return size


def _pinned_sets() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files(__package__).joinpath("jars.toml").read_text("utf-8"))


def cache_folder(env: Mapping[str, str] | None = None) -> Path:
    """Return the cache's folder.

    It is LAKEBACKUP_CACHE, else lakebackup below XDG_CACHE_HOME, else ~/.cache/lakebackup. Without a home
    folder it is below the folder for temporary files.
    """
    env = os.environ if env is None else env
    if folder := env.get("LAKEBACKUP_CACHE"):
        return Path(folder).expanduser().resolve()
    if base := env.get("XDG_CACHE_HOME"):
        return Path(base).resolve() / "lakebackup"
    home = env.get("HOME") or home_folder()
    if home is None:  # an account without a name, as in containers
        return Path(tempfile.gettempdir()) / f"lakebackup-{os.getuid()}" / "cache"
    return Path(home).resolve() / ".cache/lakebackup"


def work_folder() -> Path:
    """Return the folder for logs and compiled code.

    It is the cache's folder. If this account cannot write to that, as in an image, it is a folder of the
    account below the folder for temporary files. Raises EnvironmentProblem when that cannot be written
    either, or belongs to another account.
    """
    folder = cache_folder()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):
        return folder
    account_folder = Path(tempfile.gettempdir()) / f"lakebackup-{os.getuid()}"
    try:
        account_folder.mkdir(mode=0o700, exist_ok=True)
        folder_stat = account_folder.lstat()
    except OSError as cause:
        raise _unwritable(folder, cause) from cause
    if not stat.S_ISDIR(folder_stat.st_mode) or folder_stat.st_uid != os.getuid():
        raise _unwritable(folder, f"and {account_folder} belongs to another account")
    return account_folder


def _unwritable(folder: Path, reason: object) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The cache folder {folder} cannot be written: {reason}",
        hint="Set LAKEBACKUP_CACHE to a folder that you may write.",
    )


def class_path(jar_set: JarSet) -> str:
    """Return the paths of the set's jars joined by ':'. Fetches those that are missing or damaged.

    Raises EnvironmentProblem when one cannot be fetched, or does not have the pinned sha256.
    """
    folder = cache_folder() / "jars" / jar_set
    jars = pinned(jar_set)
    if not all(jar.is_good(folder) for jar in jars):
        with _locked(folder):  # while this process waits, another one may fetch them
            missing = [jar for jar in jars if not jar.is_good(folder)]
            if missing:
                total_bytes = pinned_bytes(jar_set) if len(missing) == len(jars) else None
                _fetch(missing, folder, total_bytes)
    return os.pathsep.join(str(folder / jar.file) for jar in jars)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as cause:
        raise _unwritable(folder, cause) from cause
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(jars: list[Jar], folder: Path, total_bytes: int | None) -> None:
    """Fetch jars to a folder below the target, then rename each, so that nobody sees a partial jar."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as temporary:
        work = Path(temporary)
        with _announced(work, len(jars), total_bytes):
            log = _run_ivy(jars, work)
        missing = [jar.file for jar in jars if not (work / jar.file).is_file()]
        if missing:
            raise EnvironmentProblem(
                f"{len(missing)} of {len(jars)} JVM libraries could not be fetched: {', '.join(missing[:5])}"
                f"{' ...' if len(missing) > 5 else ''}. {_first_cause(log)}".rstrip(),
                hint="Check the network and proxy (https_proxy); LAKEBACKUP_MAVEN_URL names a mirror.",
            )
        damaged = [jar.file for jar in jars if not jar.is_good(work)]
        if damaged:
            raise EnvironmentProblem(
                f"JVM libraries arrived with other bytes than pinned (sha256): {', '.join(sorted(damaged))}.",
                hint="The repository or a proxy changed them; do not use it.",
            )
        for jar in jars:
            (work / jar.file).replace(folder / jar.file)


@contextmanager
def _announced(work: Path, total_files: int, total_bytes: int | None) -> Iterator[None]:
    """While the block runs, announce how much Ivy has downloaded to its cache below `work`."""
    finished = threading.Event()

    def watch() -> None:
        while True:
            downloads.announce(_download_state(work, total_files, total_bytes))
            if finished.wait(_ANNOUNCE_INTERVAL_S):
                return

    watcher = threading.Thread(target=watch, name="download", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
        downloads.announce(None)


def _download_state(work: Path, total_files: int, total_bytes: int | None) -> downloads.Download:
    """Return the state of Ivy's cache: `<group>/<name>/jars/….jar`, or `….jar.part` for a partial file."""
    complete = size = 0
    name = "JVM libraries"
    for path in (work / _IVY_CACHE).rglob("*.jar*"):
        with suppress(FileNotFoundError):  # Ivy has renamed it
            size += path.stat().st_size
        if path.suffix == ".part":
            name = f"JVM libraries ({path.parent.parent.name})"
        else:
            complete += 1
    return downloads.Download(name, complete, total_files, size, total_bytes)


def _run_ivy(jars: list[Jar], work: Path) -> str:
    mirror = os.environ.get("LAKEBACKUP_MAVEN_URL", "")
    root = f"root={quoteattr(mirror)} " if mirror else ""
    (work / "settings.xml").write_text(
        '<ivysettings><settings defaultResolver="main"/>'
        '<timeout-constraints><timeout-constraint name="t" connectionTimeout="15000" readTimeout="60000"/>'
        f'</timeout-constraints><resolvers><ibiblio name="main" {root}m2compatible="true" usepoms="false" '
        'pattern="[organisation]/[module]/[revision]/[artifact].[ext]" useMavenMetadata="false" checksums="" '
        'timeoutConstraint="t"/></resolvers></ivysettings>',
        "utf-8",
    )
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.name}" rev="{jar.version}" transitive="false">'
        f'<artifact name="{jar.file.removesuffix(".jar")}" type="jar" ext="jar"/></dependency>'
        for jar in jars
    )
    (work / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="lakebackup" module="jars"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>",
        "utf-8",
    )
    command = [
        str(java_home() / "bin" / "java"), *_proxy(os.environ), "-jar", str(_ivy()),
        "-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml"),
        "-cache", str(work / _IVY_CACHE), "-retrieve", f"{work}/[artifact].[ext]",
    ]  # fmt: skip
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    except subprocess.TimeoutExpired as cause:
        raise EnvironmentProblem(
            "Fetching the JVM libraries took over 30 minutes.", hint="Try again."
        ) from cause
    return process.stdout + process.stderr


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    paths = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not paths:
        raise EnvironmentProblem(
            "PySpark is not installed completely: its Ivy jar is missing.",
            hint="Run `make setup`."
            if IS_CLONE
            else "Install it again: pip install --force-reinstall 'lakebackup[spark]'",
        )
    return paths[-1]


def _proxy(env: Mapping[str, str]) -> list[str]:
    """Return the usual environment variables for proxies as Java's options."""
    options = []
    for scheme in ("http", "https"):
        url = env.get(f"{scheme}_proxy") or env.get(f"{scheme.upper()}_PROXY") or ""
        parts = urlsplit(url if "//" in url else f"//{url}")
        if parts.hostname:
            options += [
                f"-D{scheme}.proxyHost={parts.hostname}",
                f"-D{scheme}.proxyPort={parts.port or 3128}",
            ]
    no_proxy = env.get("no_proxy") or env.get("NO_PROXY")
    if options and no_proxy:
        hosts = "|".join(f"*{h}" if h.startswith(".") else h for h in re.split(r"[,\s]+", no_proxy) if h)
        options.append(f"-Dhttp.nonProxyHosts={hosts}")
    return options


def _first_cause(log: str) -> str:
    """Return the first error in Ivy's output, without the address, which may contain a password."""
    causes = re.findall(r"(?:UnknownHost|Connect|SSL|SocketTimeout|NoRouteToHost|IO)\w*Exception[^\n]*", log)
    return re.sub(r"\w+://\S+", "<address>", causes[0]) if causes else ""


def main(argv: list[str] | None = None) -> int:
    """`python -m lakebackup_jobs.runtime.java.jars spark kafka`: fetches them, prints their class paths."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("which", nargs="+", choices=get_args(JarSet))
    for jar_set in parser.parse_args(argv).which:
        print(class_path(jar_set))
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except EnvironmentProblem as problem:
        raise SystemExit(f"error: {problem}") from None
