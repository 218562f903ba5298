"""Finds the Java for Spark and the local broker. Standard library only, as it runs before the venv exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lakebackup.errors import EnvironmentProblem

SUPPORTED = (17, 21)
_HINT = "Install a JDK 17 or 21 (for example a package named openjdk-17-jdk) and set JAVA_HOME to its folder."


def java_home(env: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the Java to use: JAVA_HOME if it is set, else that of `java` on PATH.

    Raises EnvironmentProblem when there is no Java, when it does not run, or when its version is not 17 or 21
    (the versions that both Spark 4 and Kafka 4 support).
    """
    env = os.environ if env is None else env
    folder = env.get("JAVA_HOME", "")
    if folder:
        program = Path(folder) / "bin" / "java"
        if not program.is_file():
            raise EnvironmentProblem(f"JAVA_HOME is {folder}, but there is no bin/java in it.", hint=_HINT)
    else:
        java_path = shutil.which("java", path=env.get("PATH", ""))
        if java_path is None:
            raise EnvironmentProblem(
                "No Java found: JAVA_HOME is not set and `java` is not on PATH.", hint=_HINT
            )
        program = Path(java_path)
    home = program.resolve().parent.parent
    if _version_of(home) in SUPPORTED:
        return home
    try:
        process = subprocess.run(
            [str(program), "-XshowSettings:properties", "-version"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise EnvironmentProblem(f"{program} does not run: {cause}", hint=_HINT) from cause
    return _checked(program, process.stdout + process.stderr)


def is_installed() -> bool:
    """Return whether there is a Java that can start Spark."""
    try:
        java_home()
    except EnvironmentProblem:
        return False
    return True


def _version_of(home: Path) -> int:
    """Return the version in a Java's file `release`, which is faster than running it; 0 if there is none."""
    with suppress(OSError):
        match = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text("utf-8"), re.MULTILINE)
        return int(match[1]) if match else 0
    return 0


def _checked(program: Path, answer: str) -> Path:
    settings = dict(
        re.findall(r"^\s+(java\.home|java\.specification\.version) = (.*?)\s*$", answer, re.MULTILINE)
    )
    version = settings.get("java.specification.version", "")
    if not version or "java.home" not in settings:
        raise EnvironmentProblem(f"{program} is not a working Java: {answer.strip()[:300]}", hint=_HINT)
    if version not in {str(supported) for supported in SUPPORTED}:
        raise EnvironmentProblem(f"{program} is Java {version}; Java 17 or 21 is needed.", hint=_HINT)
    return Path(settings["java.home"])
