"""What `make setup` does: check Python and Java, make the venv, install the lock, fetch JVM libraries.

Standard library only: it runs before anything is installed. A step whose inputs did not change is skipped.
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
    """Raises EnvironmentProblem when this Python is not 3.11 to 3.13 or cannot make a venv."""
    low, high = SUPPORTED_PYTHON
    shown = ".".join(map(str, version))
    hint = "Install one of them, or name it: make setup PYTHON=/path/to/python3.12"
    if not low <= version[:2] <= high:
        raise EnvironmentProblem(
            f"{sys.executable} is Python {shown}; 3.11, 3.12 or 3.13 is needed.", hint=hint
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as cause:
        raise EnvironmentProblem(
            f"{sys.executable} cannot make virtual environments ({cause}).",
            hint=f"Install its venv package (for example python{version[0]}.{version[1]}-venv).",
        ) from cause


def digest(paths: list[Path], *more: str) -> str:
    """One sha256 over files and words: the stamp of a step that depends on nothing else."""
    total = hashlib.sha256()
    for path in paths:
        total.update(hashlib.sha256(path.read_bytes()).digest())
    for word in more:
        total.update(hashlib.sha256(word.encode()).digest())
    return total.hexdigest()


def say(text: str) -> None:
    """One line of progress."""
    print(f"==> {text}", flush=True)


def setup(root: Path = ROOT) -> None:
    """Brings root/.venv and the cache of JVM libraries up to date. Raises EnvironmentProblem."""
    check_python()
    java = java_home()
    venv, lock = root / ".venv", root / "requirements.lock"
    python = venv / "bin" / "python"
    version = ".".join(map(str, sys.version_info[:3]))
    say(f"Python {version}, Java in {java}")
    packages, package = venv / ".packages", venv / ".package"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    with_python = digest([], version, str(root))
    if not (python.exists() and _read(venv / ".python") == with_python):
        say(f"making {venv}")
        _run(
            [sys.executable, "-m", "venv", "--clear", str(venv)], "The virtual environment could not be made."
        )
        (venv / ".python").write_text(with_python, "utf-8")
    if _read(packages) != (wanted := digest([lock])):
        say("installing the locked Python packages (some 700 MB: one to a few minutes)")
        _run([*pip, "--require-hashes", "-r", str(lock)], "The Python packages could not be installed.")
        packages.write_text(wanted, "utf-8")
    if _read(package) != (wanted := digest([root / "pyproject.toml"])):
        say("installing lakebackup itself, editable")
        own = ["--no-deps", "--no-build-isolation", "-e", str(root)]
        _run([*pip, *own], "lakebackup could not be installed.")
        package.write_text(wanted, "utf-8")
    translations, statements = venv / ".translations", sorted((root / "sql").rglob("*.sql"))
    statements = [path for path in statements if "duckdb" not in path.parts]
    translator = root / "catalog/lakebackup/sql_engine/__init__.py"
    if _read(translations) != (wanted := digest([lock, translator, *statements])):
        say("translating the SQL for DuckDB")
        _run([str(python), "-m", "lakebackup.sql_engine.translations"], "The SQL could not be translated.")
        translations.write_text(wanted, "utf-8")
    say("checking the JVM libraries (fetched once, about 70 MB)")
    _run(
        [str(python), "-m", "lakebackup_jobs.runtime.java.jars", "spark", "kafka"],
        "The JVM libraries are not there.",
        quiet=True,
    )
    # It says on a line that it makes it. Without it Spark works too.
    subprocess.run(
        [str(python), "-m", "lakebackup_jobs.runtime.class_data_maker"],
        env=_environment(),
        check=False,
        stderr=subprocess.DEVNULL,  # PySpark reports that its JVM ends, which is what makes the archive
    )
    say("ready")


def _read(stamp: Path) -> str:
    return stamp.read_text("utf-8") if stamp.is_file() else ""


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}


def _run(command: list[str], failed: str, *, quiet: bool = False) -> None:
    done = subprocess.run(
        command, env=_environment(), check=False, stdout=subprocess.DEVNULL if quiet else None
    )
    if done.returncode:
        raise EnvironmentProblem(
            f"{failed} The program's own message is above.",
            hint="Nothing can be fetched without a network; behind a proxy set https_proxy.",
        )


def main() -> int:
    """`python -m lakebackup_jobs.runtime.bootstrap`: returns the exit code."""
    try:
        setup()
    except LakebackupError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
