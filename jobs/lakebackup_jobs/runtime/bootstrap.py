"""Runs `make setup`: checks Python and Java, makes the venv, installs the lock, fetches JVM libraries.

Uses the standard library only, since it runs before anything is installed. A step writes a stamp, a digest of
its inputs, to a file. If the stamp did not change, the step is skipped.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from lakebackup.errors import EnvironmentProblem, LakebackupError
from lakebackup_jobs.runtime.java.home import java_home

ROOT = Path(__file__).resolve().parents[3]
SUPPORTED_PYTHON = ((3, 11), (3, 13))


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> None:
    """Raise EnvironmentProblem when this Python is not 3.11 to 3.13 or cannot make a venv."""
    low, high = SUPPORTED_PYTHON
    version_text = ".".join(map(str, version))
    hint = "Install one of them, or name it: make setup PYTHON=/path/to/python3.12"
    if not low <= version[:2] <= high:
        raise EnvironmentProblem(
            f"{sys.executable} is Python {version_text}; 3.11, 3.12 or 3.13 is needed.", hint=hint
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as cause:
        raise EnvironmentProblem(
            f"{sys.executable} cannot make virtual environments ({cause}).",
            hint=f"Install its venv package (for example python{version[0]}.{version[1]}-venv).",
        ) from cause


def digest(paths: list[Path], *words: str) -> str:
    """Return one sha256 over files and words: the stamp of a step that depends on nothing else."""
    hasher = hashlib.sha256()
    for path in paths:
        hasher.update(hashlib.sha256(path.read_bytes()).digest())
    for word in words:
        hasher.update(hashlib.sha256(word.encode()).digest())
    return hasher.hexdigest()


def print_step(text: str) -> None:
    """Print a line of progress."""
    print(f"==> {text}", flush=True)


def setup(root: Path = ROOT) -> None:
    """Bring root/.venv and the cache of JVM libraries up to date. Raises EnvironmentProblem."""
    check_python()
    java = java_home()
    venv, lock = root / ".venv", root / "requirements.lock"
    python = venv / "bin" / "python"
    version = ".".join(map(str, sys.version_info[:3]))
    print_step(f"Python {version}, Java in {java}")
    packages, package = venv / ".packages", venv / ".package"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    venv_stamp = digest([], version, str(root))
    if not (python.exists() and _read(venv / ".python") == venv_stamp):
        print_step(f"making {venv}")
        _run(
            [sys.executable, "-m", "venv", "--clear", str(venv)], "The virtual environment could not be made."
        )
        (venv / ".python").write_text(venv_stamp, "utf-8")
    if _read(packages) != (stamp := digest([lock])):
        print_step("installing the locked Python packages (some 700 MB: one to a few minutes)")
        _run([*pip, "--require-hashes", "-r", str(lock)], "The Python packages could not be installed.")
        packages.write_text(stamp, "utf-8")
    if _read(package) != (stamp := digest([root / "pyproject.toml"])):
        print_step("installing lakebackup itself, editable")
        arguments = ["--no-deps", "--no-build-isolation", "-e", str(root)]
        _run([*pip, *arguments], "lakebackup could not be installed.")
        package.write_text(stamp, "utf-8")
    translations, statements = venv / ".translations", sorted((root / "sql").rglob("*.sql"))
    statements = [path for path in statements if "duckdb" not in path.parts]
    translator = root / "catalog/lakebackup/sql_engine/__init__.py"
    if _read(translations) != (stamp := digest([lock, translator, *statements])):
        print_step("translating the SQL for DuckDB")
        _run([str(python), "-m", "lakebackup.sql_engine.translations"], "The SQL could not be translated.")
        translations.write_text(stamp, "utf-8")
    print_step("checking the JVM libraries (fetched once, about 70 MB)")
    _run(
        [str(python), "-m", "lakebackup_jobs.runtime.java.jars", "spark", "kafka"],
        "The JVM libraries are not there.",
        quiet=True,
    )
    # Makes the archives of Spark's classes, and prints a line about that. Spark works without them too.
    subprocess.run(
        [str(python), "-m", "lakebackup_jobs.runtime.class_data_maker"],
        env=_environment(),
        check=False,
        stderr=subprocess.DEVNULL,  # the JVM writes the archive when it ends; PySpark reports its end
    )
    print_step("ready")


def _read(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}


def _run(command: list[str], problem: str, *, quiet: bool = False) -> None:
    process = subprocess.run(
        command, env=_environment(), check=False, stdout=subprocess.DEVNULL if quiet else None
    )
    if process.returncode:
        raise EnvironmentProblem(
            f"{problem} The program's own message is above.",
            hint="Nothing can be fetched without a network; behind a proxy set https_proxy.",
        )


def main() -> int:
    """Run `python -m lakebackup_jobs.runtime.bootstrap`; returns the exit code."""
    try:
        setup()
    except LakebackupError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
