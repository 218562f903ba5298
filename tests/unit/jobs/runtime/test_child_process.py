from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from lakebackup_jobs.runtime.child import Child, tail

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
IGNORE = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
STUBBORN = [sys.executable, "-c", f"{IGNORE}; print('up', flush=True); time.sleep(600)"]


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_stop_kills_a_child_that_ignores_signals(tmp_path: Path) -> None:
    child = Child(STUBBORN, tmp_path / "log")
    assert wait_for(lambda: tail(tmp_path / "log") == "up")
    child.stop(seconds=0.2)
    assert not child.running
    assert child.process.returncode == -signal.SIGKILL


def test_a_child_dies_with_its_parent_even_by_sigkill(tmp_path: Path) -> None:
    program = (
        "import time, sys; from pathlib import Path; from lakebackup_jobs.runtime.child import Child\n"
        f"child = Child({SLEEPER!r}, Path({str(tmp_path / 'log')!r}))\n"
        "print(child.process.pid, child._watch.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert all(psutil.pid_exists(pid) for pid in pids)
        os.kill(parent.pid, signal.SIGKILL)
    assert wait_for(lambda: not any(_alive(pid) for pid in pids))


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_tail_gives_the_last_lines_and_nothing_for_no_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(str(n) for n in range(50_000)), "utf-8")
    assert tail(log, 2) == "49998\n49999"
    assert tail(tmp_path / "none") == ""
