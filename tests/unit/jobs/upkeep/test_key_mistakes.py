"""Mistakes with the keys of encrypted backups: each is named with its place and a hint, and changes nothing.

The tests need no JVM and no server. One repository is made for all cases; each case works on a copy.
tests/unit/jobs/cli/test_key.py has the mistakes with files of keys alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from tests.support.command_line import Commands
from tests.support.disks import flip
from tests.support.encrypted import Host, KeyPair
from tests.support.statements import payload_of

from lakebackup.encryption.recipients import new_identity
from lakebackup.signing.keys import create
from lakebackup.storage import open_storage
from lakebackup.store.manifest import get_sealed, put_sealed
from lakebackup_jobs.cli import main

PASSPHRASE, WRONG_PASSPHRASE = "correct horse battery", "wrong horse battery"
# Made for these tests, with PASSPHRASE.
SSH_KEY = b"""\
-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHIAAAAGYmNyeXB0AAAAGAAAABDV8aq0Vb
U7EqzwBE4jEJt0AAAAEAAAAAEAAAAzAAAAC3NzaC1lZDI1NTE5AAAAIJbRMSg1SYP16BuG
L9htGNF71iYBgK0/Mu4uItxuOwz2AAAAkFlgks1uIccnbuZmiKXtw0oswLiLYdfr1XOpvA
HmKEOo7OqVSuFGWht4q+eaRfPBcr/JakLmzI/wBnbWXXPcIzHKJyhLthF72JeXx5r2TVsr
QCvQb/aCfqUJsp5optdKK1xDEVdOeqf4hJl3Y42EOrwmckq9EZ1pKxq9THRV9PvMrkheyz
66b5GKW5mrxhxtIQ==
-----END OPENSSH PRIVATE KEY-----
"""


@dataclass(frozen=True)
class Original:
    """A folder with a source and two repositories of it, which have two encrypted backups each."""

    folder: Path
    keys: KeyPair
    protected: KeyPair


class Repository:
    """A copy of the original's first repository, and the host of the next commands."""

    def __init__(self, folder: Path, original: Original, host: Host) -> None:
        self.folder, self.original, self.host = folder, original, host
        self.keys = original.keys
        self.root = folder / "backups"
        self.first, self.second = key_objects(self.root)
        _, self.foreign_key = key_objects(folder / "other")
        self.next_recipient = new_identity()[1]

    def has_identity(self, file: Path, **settings: str | Path) -> None:
        """Set the identity, and a recipient that the backups do not have yet."""
        self.host.has(self.next_recipient, identity_file=file, **settings)

    def sealed(self, file: Path) -> dict[str, Any]:
        """The fields of an object of keys."""
        return get_sealed(open_storage(str(file.parent)), file.name)

    def seal(self, file: Path, wrapped_keys: list[Any]) -> None:
        """Write an object of keys with other wrapped keys and a right SHA-256."""
        content = {"format": 1, **self.sealed(file), "wrapped_keys": wrapped_keys}
        put_sealed(open_storage(str(file.parent)), file.name, content)

    def state(self) -> dict[str, bytes]:
        """Each file of the source and the repositories, but leases and the audit log, which has refusals."""
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {
            str(file.relative_to(self.folder)): file.read_bytes()
            for file in files
            if not {"audit", "leases"} & set(file.parts)
        }

    def text(self, template: str) -> str:
        """The text of an error, with the names of this repository."""
        return template.format(
            first=self.first.relative_to(self.root),
            second=self.second.relative_to(self.root),
            recipient=self.keys.recipient,
            folder=self.host.folder,
            protected=self.original.protected.file,
        )

    def check_hidden(self, text: str) -> None:
        """Check that a text shows no identity and no passphrase."""
        assert self.keys.file.read_text().split()[-1] not in text
        assert PASSPHRASE not in text
        assert WRONG_PASSPHRASE not in text


def key_objects(root: Path) -> list[Path]:
    return sorted(root.glob("*/backups/*/data-keys/*.json"))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    folder = tmp_path_factory.mktemp("original")
    tree = folder / "tree"
    tree.mkdir()
    (tree / "unchanged").write_bytes(b"unchanged")
    with pytest.MonkeyPatch.context() as monkeypatch:
        host = Host(monkeypatch, tmp_path_factory.mktemp("keys"))
        keys = host.key_pair("restore.identity")
        host.has(keys.recipient)
        for number in range(2):
            (tree / "changed").write_bytes(b"%d" % number)
            for name in ("backups", "other"):
                assert main(["backup", "snapshot", str(tree), "--repo", str(folder / name)]) == 0
        return Original(folder, keys, host.key_pair("protected.identity", PASSPHRASE))


@pytest.fixture
def repository(original: Original, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Repository:
    folder = tmp_path / "copy"
    shutil.copytree(original.folder, folder)
    monkeypatch.setenv("LAKEBACKUP_REPO", str(folder / "backups"))
    monkeypatch.chdir(tmp_path)
    repository = Repository(folder, original, Host(monkeypatch, tmp_path / "keys"))
    repository.has_identity(original.keys.file)
    return repository


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    return Commands(capsys)


def no_identity(repository: Repository) -> None:
    repository.host.has(repository.next_recipient)


def missing_identity_file(repository: Repository) -> None:
    repository.has_identity(repository.host.folder / "gone")


def folder_as_identity(repository: Repository) -> None:
    repository.has_identity(repository.host.folder)


def text_as_identity(repository: Repository) -> None:
    repository.has_identity(repository.host.write("text", b"hello"))


def recipient_as_identity(repository: Repository) -> None:
    """Others may read the file, as they may read any public key."""
    file = repository.host.write("public", b"# of the restore host\n" + repository.keys.recipient.encode())
    file.chmod(0o644)
    repository.has_identity(file)


def signing_key_as_identity(repository: Repository) -> None:
    create(repository.host.folder / "sign", None)
    repository.has_identity(repository.host.folder / "sign")


def public_signing_key_as_identity(repository: Repository) -> None:
    create(repository.host.folder / "sign", None)
    repository.has_identity(repository.host.folder / "sign.pub")


def ssh_key_with_passphrase(repository: Repository) -> None:
    repository.has_identity(repository.host.write("ssh", SSH_KEY), passphrase=PASSPHRASE)


def ssh_key_of_another_kind(repository: Repository) -> None:
    content = generate_private_key(SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    repository.has_identity(repository.host.write("ssh", content))


def missing_passphrase(repository: Repository) -> None:
    repository.has_identity(repository.original.protected.file)


def wrong_passphrase(repository: Repository) -> None:
    file = repository.host.write("passphrase", WRONG_PASSPHRASE.encode())
    repository.has_identity(repository.original.protected.file, passphrase_file=file)


def missing_passphrase_file(repository: Repository) -> None:
    repository.has_identity(
        repository.original.protected.file, passphrase_file=repository.host.folder / "gone"
    )


def two_passphrases(repository: Repository) -> None:
    file = repository.host.write("passphrase", PASSPHRASE.encode())
    repository.has_identity(repository.original.protected.file, passphrase=PASSPHRASE, passphrase_file=file)


def identity_that_others_read(repository: Repository) -> None:
    file = repository.host.write("open.identity", repository.keys.file.read_bytes())
    file.chmod(0o644)
    repository.has_identity(file)


def foreign_identity(repository: Repository) -> None:
    repository.has_identity(repository.host.key_pair("foreign.identity").file)


def retired_identity(repository: Repository) -> None:
    """Its recipient was taken out by a rotation."""
    new = repository.host.key_pair("new.identity")
    repository.host.has(new.recipient, identity_file=repository.keys.file)
    assert main(["key", "rotate"]) == 0
    repository.has_identity(repository.keys.file)


#: What a restore and a rotation say to a wrong identity.
IDENTITIES: list[tuple[Callable[[Repository], None], int, str, str]] = [
    (no_identity, 2, "o identity is set", "Set identity_file under [encryption]"),
    (missing_identity_file, 3, "{folder}/gone does not exist", "Check identity_file under [encryption]"),
    (folder_as_identity, 6, "The identity file {folder} cannot be read: Is a directory", ""),
    (text_as_identity, 2, "{folder}/text is not a file of identities", "has lines AGE-SECRET-KEY-1…"),
    (recipient_as_identity, 2, "{folder}/public is a public key, and opens", "`lakebackup key create"),
    (signing_key_as_identity, 2, "{folder}/sign is a key that signs, and opens", "private SSH key"),
    (public_signing_key_as_identity, 2, "{folder}/sign.pub is a public key, and opens", "SSH key"),
    (ssh_key_with_passphrase, 2, "{folder}/ssh is an SSH key that has a passphrase", "ssh-keygen -p -f COPY"),
    (ssh_key_of_another_kind, 2, "or is neither ed25519 nor rsa", "or an identity of age"),
    (missing_passphrase, 2, "{protected} is protected by a passphrase, and none", "passphrase_file under"),
    (wrong_passphrase, 2, "The passphrase of {protected} is wrong", "passphrase_file under [encryption]"),
    (missing_passphrase_file, 3, "The passphrase file {folder}/gone cannot be read", "or passphrase_file of"),
    (two_passphrases, 2, "[encryption] has both passphrase and passphrase_file", "Set one of them"),
    (identity_that_others_read, 5, "Others may read the identity file", "chmod go= {folder}/open.identity"),
    (foreign_identity, 7, "opens the data key {first}. Its recipients: {recipient}", "dentity"),
    (retired_identity, 7, "opens the data key {first}. Its recipients: age1", "dentity"),
]


@pytest.mark.parametrize(
    ("mistake", "code", "text", "hint"), IDENTITIES, ids=[case[0].__name__ for case in IDENTITIES]
)
def test_a_wrong_identity_is_named_and_nothing_changes(
    mistake: Callable[[Repository], None],
    code: int,
    text: str,
    hint: str,
    repository: Repository,
    commands: Commands,
    tmp_path: Path,
) -> None:
    mistake(repository)
    state = repository.state()
    for words in (["restore", "snapshot", "--to", tmp_path / "out"], ["key", "rotate"]):
        error = commands.fails(code, *words)
        assert repository.text(text) in error
        assert repository.text(hint) in error
        repository.check_hidden(error)
    assert repository.state() == state
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("mistake", "code", "text", "hint"), IDENTITIES, ids=[case[0].__name__ for case in IDENTITIES]
)
def test_a_drill_with_a_wrong_identity_ends_as_a_restore_and_is_not_recorded(
    mistake: Callable[[Repository], None],
    code: int,
    text: str,
    hint: str,
    repository: Repository,
    commands: Commands,
) -> None:
    mistake(repository)
    state = repository.state()
    exit_code, output, err = commands.run("drill", "--json")
    assert exit_code == code, err
    error = json.loads(err.splitlines()[-1])
    assert repository.text(text) in error["message"]
    assert repository.text(hint) in error["message"] + error["hint"]
    repository.check_hidden(err)
    result = json.loads(output.splitlines()[-1])
    assert result["drills"] == []
    assert list(result["not_opened"]) == ["tree"]
    assert repository.state() == state
    assert commands.rows("sql", "SELECT * FROM drills") == []


def test_a_wrong_identity_prevents_no_drill_of_other_sources(
    repository: Repository, commands: Commands, tmp_path: Path
) -> None:
    repository.host.has()
    commands.output("backup", "snapshot", repository.folder / "tree", "--source", "clear")
    missing_identity_file(repository)
    evidence = tmp_path / "drill.json"
    code, output, err = commands.run("drill", "--json", "--evidence", evidence)
    assert code == 3, err
    (drill,) = json.loads(output.splitlines()[-1])["drills"]
    assert (drill["source"], drill["outcome"]) == ("clear", "ok")
    assert commands.rows("sql", "SELECT source, outcome FROM drills") == [
        {"source": "clear", "outcome": "ok"}
    ]
    page = evidence.with_name("drill.json.html").read_text()
    assert f"The drill of tree: The identity file {repository.host.folder}/gone does not exist." in page
    # Damage has precedence: the other drill found some.
    for file in (repository.root / "clear" / "snapshots").rglob("*"):
        if file.is_file():
            flip(file)
    assert "Not what was backed up: clear: " in commands.fails(7, "drill")


def test_a_trial_restore_with_a_foreign_identity_finds_no_damage(
    repository: Repository, commands: Commands
) -> None:
    foreign_identity(repository)
    error = commands.fails(4, "verify", "--restore")
    assert "Trial restores failed: " in error
    assert "opens the data key" in error
    assert commands.rows("sql", "SELECT * FROM checks WHERE outcome <> 'ok'") == []
    lost_key(repository)
    commands.fails(7, "verify", "--restore")


def test_evidence_of_a_foreign_identity_shows_no_difference(
    repository: Repository, commands: Commands, tmp_path: Path
) -> None:
    foreign_identity(repository)
    evidence = tmp_path / "drill.json"
    commands.fails(7, "drill", "--evidence", evidence)
    statement = json.loads(payload_of(evidence.read_bytes()))["predicate"]
    assert (statement["outcome"], statement["exit_code"]) == ("failed", 7)


def lost_key(repository: Repository) -> None:
    repository.first.unlink()


def torn_key(repository: Repository) -> None:
    repository.first.write_bytes(repository.first.read_bytes()[:-40])


def flipped_key(repository: Repository) -> None:
    flip(repository.first)


def exchanged_keys(repository: Repository) -> None:
    first, second = repository.first.read_bytes(), repository.second.read_bytes()
    repository.first.write_bytes(second)
    repository.second.write_bytes(first)


def exchanged_wrapped_keys(repository: Repository) -> None:
    """Each object has its own name and a right SHA-256, and what was wrapped for the other."""
    first, second = repository.sealed(repository.first), repository.sealed(repository.second)
    repository.seal(repository.first, second["wrapped_keys"])
    repository.seal(repository.second, first["wrapped_keys"])


def key_for_nobody(repository: Repository) -> None:
    repository.seal(repository.first, [])


def key_of_another_repository(repository: Repository) -> None:
    """The identity opens it, but it is not the key of these files."""
    repository.first.write_bytes(repository.foreign_key.read_bytes())


def wrapped_key_of_another_repository(repository: Repository) -> None:
    repository.seal(repository.first, repository.sealed(repository.foreign_key)["wrapped_keys"])


#: What a restore, a test of the key and a rotation say to a wrong object of keys.
KEY_OBJECTS: list[tuple[Callable[[Repository], None], str]] = [
    (lost_key, "The data key {first} is lost"),
    (torn_key, "{first}: its contents do not match the SHA-256 at its end"),
    (flipped_key, "{first}: its contents do not match the SHA-256 at its end"),
    (exchanged_keys, "{first} is the object of another data key: {second}"),
    (exchanged_wrapped_keys, "The data key {first} was exchanged: {recipient} opens"),
    (key_for_nobody, "opens the data key {first}. Its recipients: nobody"),
    (key_of_another_repository, "{first} is the object of another data key: tree/backups/"),
    (wrapped_key_of_another_repository, "The data key {first} was exchanged: {recipient} opens"),
]


@pytest.mark.parametrize(("mistake", "text"), KEY_OBJECTS, ids=[case[0].__name__ for case in KEY_OBJECTS])
def test_a_wrong_object_of_keys_is_named_and_nothing_changes(
    mistake: Callable[[Repository], None],
    text: str,
    repository: Repository,
    commands: Commands,
    tmp_path: Path,
) -> None:
    mistake(repository)
    state = repository.state()
    for words in (["restore", "snapshot", "--to", tmp_path / "out"], ["key", "test", repository.keys.file]):
        error = commands.fails(7, *words)
        assert repository.text(text) in error
        repository.check_hidden(error)
    assert repository.state() == state
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("mistake", "text"), KEY_OBJECTS, ids=[case[0].__name__ for case in KEY_OBJECTS])
def test_a_drill_with_a_wrong_object_of_keys_is_recorded(
    mistake: Callable[[Repository], None], text: str, repository: Repository, commands: Commands
) -> None:
    mistake(repository)
    (backup, *_) = commands.rows("sql", "SELECT backup_id FROM backups ORDER BY number DESC")
    assert repository.text(text) in commands.fails(7, "drill", "--backup", backup["backup_id"])
    (drill,) = commands.rows("sql", "SELECT outcome, detail FROM drills")
    assert drill["outcome"] == "different"
    assert repository.text(text) in drill["detail"]


def test_a_lost_key_hides_only_its_own_files(
    repository: Repository, commands: Commands, tmp_path: Path
) -> None:
    lost_key(repository)
    words = ["restore", "snapshot", "--to", tmp_path / "out", "--layout", "flat", "--select"]
    commands.output(*words, "SELECT * FROM snapshot_files WHERE name = 'changed' AND added_in = 2")
    assert (tmp_path / "out" / "changed").read_bytes() == b"1"


def test_verify_names_wrong_objects_of_keys_without_an_identity(
    repository: Repository, commands: Commands
) -> None:
    repository.host.has()
    lost_key(repository)
    flip(repository.second)
    code, output, err = commands.run("verify", "--json")
    result = json.loads(output.splitlines()[-1])
    assert (code, result["missing"], result["damaged"]) == (7, 1, 1), err


def stranger_beside_the_recipient(repository: Repository, wrapped: list[Any]) -> list[Any]:
    """The object names a recipient whom no settings name."""
    return [*wrapped, {**wrapped[0], "recipient": new_identity()[1]}]


def recipient_in_name_only(repository: Repository, wrapped: list[Any]) -> list[Any]:
    """The object names the next recipient, and the retired identity opens it."""
    return [{**wrapped[0], "recipient": repository.next_recipient}]


def recipient_named_twice(repository: Repository, wrapped: list[Any]) -> list[Any]:
    return recipient_in_name_only(repository, wrapped) * 2


@pytest.mark.parametrize(
    "forged", [stranger_beside_the_recipient, recipient_in_name_only, recipient_named_twice]
)
def test_a_rotation_wraps_a_forged_object_for_the_recipients_of_the_settings_alone(
    forged: Callable[[Repository, list[Any]], list[Any]], repository: Repository, commands: Commands
) -> None:
    repository.seal(repository.first, forged(repository, repository.sealed(repository.first)["wrapped_keys"]))
    commands.output("key", "rotate")
    for file in (repository.first, repository.second):
        wrapped = repository.sealed(file)["wrapped_keys"]
        assert [key["recipient"] for key in wrapped] == [repository.next_recipient]
    assert "2 of 2 data keys cannot be opened" in commands.fails(7, "key", "test", repository.keys.file)


def test_a_rotation_passes_over_a_lost_key_and_wraps_all_others(
    repository: Repository, commands: Commands
) -> None:
    lost_key(repository)
    new = repository.host.key_pair("new.identity")
    repository.host.has(new.recipient, identity_file=repository.keys.file)
    error = commands.fails(7, "key", "rotate")
    assert "1 of 2 data keys cannot be opened" in error
    assert repository.text("The data key {first} is lost") in error
    (wrapped,) = repository.sealed(repository.second)["wrapped_keys"]
    assert wrapped["recipient"] == new.recipient
    query = "SELECT recipient FROM data_keys ORDER BY backup_id"
    assert [row["recipient"] for row in commands.rows("sql", query)] == [
        repository.keys.recipient,
        new.recipient,
    ]


def identity_as_signing_key(repository: Repository) -> Path:
    return repository.keys.file


def protected_identity_as_signing_key(repository: Repository) -> Path:
    return repository.original.protected.file


def ssh_key_as_signing_key(repository: Repository) -> Path:
    return repository.host.write("ssh", SSH_KEY)


def public_key_as_signing_key(repository: Repository) -> Path:
    create(repository.host.folder / "sign", None)
    return repository.host.folder / "sign.pub"


@pytest.mark.parametrize(
    ("key_file", "text"),
    [
        (identity_as_signing_key, "is an identity, which reads encrypted backups and cannot sign"),
        (protected_identity_as_signing_key, "is an identity, which reads encrypted backups and cannot sign"),
        (ssh_key_as_signing_key, "is a key of OpenSSH, not PKCS#8"),
        (public_key_as_signing_key, "is a public key, and a private key is needed to sign"),
    ],
)
def test_a_key_that_cannot_sign_starts_no_backup(
    key_file: Callable[[Repository], Path],
    text: str,
    repository: Repository,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = key_file(repository)
    monkeypatch.setenv("LAKEBACKUP_SIGNING__KEY_FILE", str(file))
    (repository.folder / "tree" / "changed").write_bytes(b"later")
    state = repository.state()
    error = commands.fails(2, "backup", "snapshot", repository.folder / "tree")
    assert f"{file} {text}" in error
    repository.check_hidden(error)
    assert repository.state() == state


def identity_as_recipient(repository: Repository) -> None:
    repository.host.has(repository.keys.file.read_text().split()[-1])


def ssh_key_as_recipient(repository: Repository) -> None:
    repository.host.has(SSH_KEY.decode())


def recipient_with_a_typo(repository: Repository) -> None:
    last = "q" if repository.keys.recipient[-1] != "q" else "p"
    repository.host.has(repository.next_recipient, repository.keys.recipient[:-1] + last)


def recipient_that_is_cut_off(repository: Repository) -> None:
    lines = f"# of the restore host\n{repository.next_recipient}\n\n{repository.keys.recipient[:-3]}\n"
    repository.host.has(recipients_file=repository.host.write("recipients", lines.encode()))


def identity_file_as_recipients_file(repository: Repository) -> None:
    repository.host.has(recipients_file=repository.keys.file)


def missing_recipients_file(repository: Repository) -> None:
    repository.host.has(recipients_file=repository.host.folder / "gone")


def empty_recipients_file(repository: Repository) -> None:
    repository.host.has(recipients_file=repository.host.write("recipients", b"# nobody yet\n\n"))


def empty_recipient(repository: Repository) -> None:
    repository.host.has(repository.next_recipient, "")


#: What a backup and a rotation say to a wrong recipient.
RECIPIENTS: list[tuple[Callable[[Repository], None], str, str]] = [
    (identity_as_recipient, "this one is an identity (in recipients under [encryption])", "never recipients"),
    (ssh_key_as_recipient, "this one is an identity (in recipients under [encryption])", "never recipients"),
    (
        recipient_with_a_typo,
        "is not a recipient: a character is wrong or missing (in recipients under [encryption])",
        "age1…, ssh-ed25519 …",
    ),
    (recipient_that_is_cut_off, "a character is wrong or missing (line 4 of {folder}/recipients)", "in full"),
    (identity_file_as_recipients_file, "this one is an identity (line 2 of ", "never recipients"),
    (missing_recipients_file, "{folder}/gone cannot be read: No such file", "Check recipients_file under"),
    (empty_recipients_file, "{folder}/recipients names none", "Write one recipient a line"),
    (empty_recipient, "A recipient is empty (in recipients under [encryption])", "A recipient is age1…"),
]


@pytest.mark.parametrize(
    ("mistake", "text", "hint"), RECIPIENTS, ids=[case[0].__name__ for case in RECIPIENTS]
)
def test_a_wrong_recipient_starts_nothing(
    mistake: Callable[[Repository], None],
    text: str,
    hint: str,
    repository: Repository,
    commands: Commands,
) -> None:
    mistake(repository)
    (repository.folder / "tree" / "changed").write_bytes(b"later")
    state = repository.state()
    for words in (["backup", "snapshot", repository.folder / "tree"], ["key", "rotate"]):
        error = commands.fails(2, *words)
        assert repository.text(text) in error
        assert hint in error
        repository.check_hidden(error)
    assert repository.state() == state


def test_keys_are_not_rotated_for_nobody(repository: Repository, commands: Commands) -> None:
    repository.host.has(identity_file=repository.keys.file)
    state = repository.state()
    error = commands.fails(2, "key", "rotate")
    assert "No recipient is set, so nobody could open the data keys" in error
    assert "Set recipients under [encryption]" in error
    assert repository.state() == state


def test_a_key_test_without_a_key_says_which_settings_name_one(
    repository: Repository, commands: Commands
) -> None:
    repository.host.has()
    assert "identity_file under [encryption]" in commands.fails(2, "key", "test")
