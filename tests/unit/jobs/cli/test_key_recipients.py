"""`lakebackup key add` and `key remove`: the file of recipients, and the data keys of older backups."""

from __future__ import annotations

import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.command_line import Commands
from tests.support.encrypted import Host, KeyPair

from lakebackup.encryption.recipients import new_identity
from lakebackup_jobs.runtime import recipients_file
from lakebackup_jobs.runtime.recipients_file import RecipientsFile

NAMES = [new_identity()[1] for _ in range(4)]
SECRET = new_identity()[0].splitlines()[-1]

# Runs a command for each recipient. It waits after each read, so that other processes come between.
SLOW_CHANGES = """
import sys, time
from lakebackup_jobs.cli import main
from lakebackup_jobs.runtime.recipients_file import RecipientsFile

read = RecipientsFile.read

def read_slowly(*arguments, **keywords):
    file = read(*arguments, **keywords)
    time.sleep(0.01)
    return file

RecipientsFile.read = read_slowly
sys.exit(max(main(["key", sys.argv[1], name]) for name in sys.argv[2:]))
"""


@dataclass
class Machine:
    """A host with a file of recipients: Anna and Ben, with comments."""

    host: Host
    commands: Commands
    anna: KeyPair
    ben: KeyPair
    file: Path

    @property
    def content(self) -> str:
        return f"# who restores\n{self.anna.recipient}\n\n  # in the safe\n{self.ben.recipient}\n"


@pytest.fixture
def machine(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBACKUP_RUNNER", "local")
    host, file = Host(monkeypatch, tmp_path / "keys"), tmp_path / "recipients"
    machine = Machine(host, Commands(capsys), host.key_pair("anna"), host.key_pair("ben"), file)
    file.write_text(machine.content)
    host.has(recipients_file=file)
    return machine


def test_recipients_are_added_and_removed_and_comments_stay(machine: Machine) -> None:
    commands, file = machine.commands, machine.file
    file.chmod(0o640)
    output = commands.output("key", "add", NAMES[0], machine.anna.recipient)
    assert f"Added {NAMES[0]} to {file}." in output
    assert f"{file} names {machine.anna.recipient} already." in output
    assert "`lakebackup key rotate` wraps the data keys of older backups" in output
    assert file.read_text() == f"{machine.content}{NAMES[0]}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    result = commands.result("key", "add", NAMES[0])
    assert (result["added"], result["present"]) == ([], [NAMES[0]])
    output = commands.output("key", "remove", NAMES[0])
    assert f"Removed {NAMES[0]} from {file}." in output
    assert "still opens older backups until `lakebackup key rotate`" in output
    assert file.read_text() == machine.content
    assert [path.name for path in file.parent.iterdir() if path.is_file()] == ["recipients"]


def test_a_missing_file_is_created(machine: Machine) -> None:
    machine.file.unlink()
    machine.commands.output("key", "add", NAMES[0], NAMES[0], f"  {NAMES[1]} ")
    assert machine.file.read_text() == f"{NAMES[0]}\n{NAMES[1]}\n"


def test_a_dry_run_writes_nothing(machine: Machine) -> None:
    for verb, name in (("add", NAMES[0]), ("remove", machine.anna.recipient)):
        output = machine.commands.output("key", verb, name, "--dry-run")
        assert f"Would {verb} {name}" in output
        assert "Nothing was written." in output
    assert machine.file.read_text() == machine.content


def test_a_file_that_others_may_write_is_refused(machine: Machine) -> None:
    machine.file.chmod(0o666)
    assert "Others may write the file of recipients" in machine.commands.fails(5, "key", "add", NAMES[0])
    assert machine.file.read_text() == machine.content


def test_the_file_of_a_link_is_replaced(machine: Machine) -> None:
    real_file = machine.file.rename(machine.file.with_name("real"))
    machine.file.symlink_to(real_file)
    machine.commands.output("key", "add", NAMES[0])
    assert machine.file.is_symlink()
    assert NAMES[0] in real_file.read_text()


@pytest.mark.parametrize("verb", ["add", "remove"])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{NAMES[0][:-1]}{'q' if NAMES[0][-1] != 'q' else 'p'}", "a character is wrong or missing"),
        (NAMES[0][:-1], "a character is wrong or missing"),
        ("alice", "neither age1 nor ssh-"),
        ("ssh-ed25519", "not a complete public key of SSH"),
        ("ssh-ed25519 AAAA", "not a complete public key of SSH"),
        ("", "A recipient is empty"),
        (f"{NAMES[0]}\n{NAMES[1]}", "several lines"),
        ("b3BlbnNzaC1rZXktdjEAAAAA", "neither age1 nor ssh-"),
    ],
    ids=["typo", "cut", "name", "no key", "SSH, cut", "empty", "two", "of a private key"],
)
def test_a_text_that_is_no_recipient_is_refused(machine: Machine, verb: str, text: str, reason: str) -> None:
    error = machine.commands.fails(2, "key", verb, NAMES[1], text)
    assert reason in error.replace("\n", " ")
    assert machine.file.read_text() == machine.content


@pytest.mark.parametrize("verb", ["add", "remove"])
@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        SECRET.lower(),
        f"# recipient\n{SECRET}",
        SECRET[:-4],
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA",
    ],
    ids=["identity", "small letters", "file", "cut", "SSH"],
)
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["", "json"])
def test_a_private_key_is_refused_and_not_shown(
    machine: Machine, verb: str, text: str, flags: list[str]
) -> None:
    code, output, err = machine.commands.run("key", verb, text, *flags)
    assert code == 2
    assert "this one is an identity" in err or "takes no private key" in err
    for part in (text[-12:], text[20:32]):
        assert part not in output + err
    assert machine.file.read_text() == machine.content


def test_what_is_not_there_or_the_last_is_not_removed(machine: Machine) -> None:
    commands = machine.commands
    error = commands.fails(3, "key", "remove", machine.anna.recipient, NAMES[0])
    assert f"does not name {NAMES[0]}. Nothing was removed." in error
    error = commands.fails(5, "key", "remove", machine.anna.recipient, machine.ben.recipient)
    assert f"{machine.ben.recipient} is the last recipient" in error
    machine.host.has(machine.ben.recipient, recipients_file=machine.file)
    error = commands.fails(2, "key", "remove", machine.ben.recipient)
    assert f"{machine.ben.recipient} is in the settings" in error
    assert machine.file.read_text() == machine.content


def test_recipients_in_the_settings_are_edited_there(machine: Machine) -> None:
    for verb in ("add", "remove"):
        machine.host.has(machine.anna.recipient)
        error = machine.commands.fails(2, "key", verb, machine.anna.recipient)
        assert "Edit recipients under [encryption] of lakebackup.toml" in error
        machine.host.has()
        assert "Set recipients_file" in machine.commands.fails(2, "key", verb, machine.anna.recipient)


def test_a_file_that_cannot_be_written_stays_as_it_was(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recipients_file.os, "fsync", fail)
    assert "No space left on device" in machine.commands.fails(6, "key", "add", NAMES[0])
    assert machine.file.read_text() == machine.content
    assert [path.name for path in machine.file.parent.iterdir() if path.is_file()] == ["recipients"]


def test_changes_of_several_processes_at_once_are_all_made(machine: Machine) -> None:
    """Three processes add recipients, and a fourth one removes others."""
    names = [new_identity()[1] for _ in range(24)]
    machine.commands.output("key", "add", *names[18:])
    changes = [("add", names[:6]), ("add", names[6:12]), ("add", names[12:18]), ("remove", names[18:])]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SLOW_CHANGES, verb, *group],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for verb, group in changes
    ]
    for process in processes:
        _, err = process.communicate()
        assert process.returncode == 0, err
    assert machine.file.read_text().startswith(machine.content)
    added = machine.file.read_text().removeprefix(machine.content).split()
    assert sorted(added) == sorted(names[:18])
    assert [path.name for path in machine.file.parent.iterdir() if path.is_file()] == ["recipients"]


def test_a_file_that_another_command_changes_is_left_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipients_file, "_LOCK_WAIT_S", 0.1)
    with recipients_file.locked(machine.file):
        for words in (["add", NAMES[0]], ["remove", machine.anna.recipient]):
            error = machine.commands.fails(8, "key", *words)
            assert f"Another command is changing the file of recipients {machine.file}." in error
        machine.commands.output("key", "add", NAMES[0], "--dry-run")
    assert machine.file.read_text() == machine.content


def test_the_lock_of_a_killed_command_does_not_last(machine: Machine) -> None:
    machine.file.with_name(f".{machine.file.name}.lock").touch(mode=0o600)
    machine.commands.output("key", "add", NAMES[0])
    assert machine.file.read_text() == f"{machine.content}{NAMES[0]}\n"


def test_a_file_that_cannot_be_locked_is_named(machine: Machine) -> None:
    machine.host.has(recipients_file=machine.file.parent / "gone" / "recipients")
    error = machine.commands.fails(6, "key", "add", NAMES[0])
    assert "/gone/recipients cannot be locked" in error
    assert "may write its folder" in error


def test_a_rotation_wraps_older_data_keys_for_the_new_list(machine: Machine, tmp_path: Path) -> None:
    host, commands, tree = machine.host, machine.commands, tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"content")
    repo = ("--repo", tmp_path / "backups")
    commands.output("backup", "snapshot", tree, "--source", "store", *repo)
    carla = host.key_pair("carla")
    query = ("sql", "SELECT recipient FROM data_keys", *repo)

    def recipients() -> set[str]:
        return {row["recipient"] for row in commands.rows(*query)}

    # Without an identity the rotation cannot start, and the file stays as it was.
    assert "No identity is set" in commands.fails(2, "key", "add", carla.recipient, "--rotate", *repo)
    assert machine.file.read_text() == machine.content
    host.has(recipients_file=machine.file, identity_file=machine.anna.file)
    planned = commands.result("key", "add", carla.recipient, "--rotate", "--dry-run", *repo)
    assert (planned["rotation"]["keys"], planned["dry_run"]) == (1, True)
    assert "Would wrap 1 data key" in commands.output("key", "rotate", "--dry-run", *repo)
    assert carla.recipient not in recipients()
    added = commands.result("key", "add", carla.recipient, "--rotate", *repo)
    assert added["rotation"]["keys"] == 1
    assert recipients() == {machine.anna.recipient, machine.ben.recipient, carla.recipient}
    host.has(recipients_file=machine.file, identity_file=carla.file)
    output = commands.output("key", "remove", machine.anna.recipient, "--rotate", *repo)
    assert "Wrapped 1 data key" in output
    assert "still opens copies of the repository that were taken before" in output
    assert recipients() == {machine.ben.recipient, carla.recipient}
    commands.output("restore", "snapshot", "--source", "store", "--to", tmp_path / "back", *repo)
    audit = commands.rows("sql", "SELECT action FROM audit WHERE action LIKE 'key%'", *repo)
    assert [row["action"] for row in audit].count("key remove") == 1


def test_the_list_of_keys_has_the_recipients_of_the_settings(machine: Machine) -> None:
    with machine.file.open("a") as file:
        file.write(f"{NAMES[0][:-2]}\n")
    machine.host.has(NAMES[1], recipients_file=machine.file)
    rows = machine.commands.rows("key", "list")
    assert [(row["kind"], row["key_id"], row["file"]) for row in rows] == [
        ("recipient", NAMES[1], None),
        ("recipient", machine.anna.recipient, str(machine.file)),
        ("recipient", machine.ben.recipient, str(machine.file)),
        ("recipient", None, str(machine.file)),
    ]
    assert "a character is wrong or missing" in rows[-1]["problem"]
    machine.host.has(recipients_file=machine.file.with_name("gone"))
    (row,) = machine.commands.rows("key", "list")
    assert "cannot be read" in row["problem"]


LINES = st.lists(st.sampled_from([*NAMES, "", "# a comment", "  # indented", f"# {NAMES[0]}"]), max_size=8)


@given(lines=LINES, names=st.sets(st.sampled_from(NAMES)))
def test_a_change_keeps_every_other_line(lines: list[str], names: set[str]) -> None:
    file = RecipientsFile(Path("recipients"), tuple(lines))
    new_names = [name for name in sorted(names) if name not in file.names]
    larger = file.with_recipients(new_names)
    assert larger.lines == (*lines, *new_names)
    assert larger.without(new_names) == file
    assert file.without(names).lines == tuple(line for line in lines if line not in names)
