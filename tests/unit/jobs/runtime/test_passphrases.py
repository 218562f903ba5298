"""Passphrases of keys and identities: of settings, of files, and of commands that print them.

Layer: make test, without Java.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from tests.support.command_line import Commands
from tests.support.encrypted import Host

from lakebackup.config import EncryptionOptions
from lakebackup_jobs.runtime import identities


def test_a_command_opens_an_identity_once_in_a_process(
    commands: Commands, host: Host, tmp_path: Path
) -> None:
    keys = host.key_pair("identity", passphrase="open sesame")
    log = tmp_path / "runs"
    script = f"print('open sesame'); open({str(log)!r}, 'a').write('run\\n')"
    host.has(keys.recipient)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_text("text")
    commands.output("backup", "snapshot", tmp_path / "tree")
    command = shlex.join([sys.executable, "-c", script])
    host.has(identity_file=keys.file, passphrase_command=command)
    commands.output("restore", "snapshot", "--to", tmp_path / "restored")
    assert commands.result("verify", "--decode")["damaged"] == 0
    assert (tmp_path / "restored/tree/file").read_text() == "text"
    assert log.read_text() == "run\n"


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        ("python -c 'exit(1)'", 6, "passphrase_command under [encryption]: PYTHON ended with 1"),
        ("no-such-program", 6, "cannot run no-such-program: No such file or directory"),
        ("python -c pass", 2, "PYTHON prints no passphrase in its first line"),
        ("python -c 'print()'", 2, "PYTHON prints no passphrase in its first line"),
        ("python -c 'import os; os.write(1, bytes([255]))'", 2, "PYTHON prints no passphrase"),
        ("python -c 'print(1)'", 2, "The passphrase of"),
    ],
    ids=["fails", "is missing", "prints nothing", "prints a line", "prints no text", "prints another one"],
)
def test_a_command_that_gives_no_passphrase_is_named(
    commands: Commands, host: Host, command: str, code: int, text: str
) -> None:
    keys = host.key_pair("identity", passphrase="open sesame")
    host.has(identity_file=keys.file, passphrase_command=command.replace("python", sys.executable))
    text = text.replace("PYTHON", sys.executable)
    assert text in commands.fails(code, "key", "test", keys.file)


def test_there_is_one_passphrase(commands: Commands, host: Host, tmp_path: Path) -> None:
    keys = host.key_pair("identity", passphrase="open sesame")
    host.has(identity_file=keys.file, passphrase_file=tmp_path / "file", passphrase_command="echo x")
    error = commands.fails(2, "key", "test", keys.file)
    assert "[encryption] has both passphrase_file and passphrase_command" in error


def test_processes_below_have_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    identities.use(EncryptionOptions(passphrase_command=("echo", "two words")))
    monkeypatch.setattr(identities, "_options", None)
    assert identities.in_use().passphrase_command == "echo 'two words'"
