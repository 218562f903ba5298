"""`lakebackup key`: keys are created, listed and tested, and no output shows a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.command_line import Commands

PASSPHRASE = "correct horse battery"


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.chdir(tmp_path)
    return Commands(capsys)


def write_private(name: str, text: str) -> str:
    Path(name).write_text(text)
    Path(name).chmod(0o600)
    return name


def test_a_key_is_created_tested_and_listed(commands: Commands) -> None:
    (created,) = commands.rows("key", "create", "evidence.key")
    assert created["purpose"] == "signing"
    (tested,) = commands.rows("key", "test", "evidence.key")
    assert tested["key_id"] == created["key_id"]
    rows = commands.rows("key", "list", ".")
    assert {row["file"]: (row["kind"], row["key_id"]) for row in rows} == {
        "evidence.key": ("private", created["key_id"]),
        "evidence.key.pub": ("public", created["key_id"]),
    }
    table = commands.output("key", "list", ".")
    assert created["key_id"][:16] in table
    assert created["key_id"] not in table


def test_the_key_in_use_is_that_of_the_settings(commands: Commands) -> None:
    commands.output("key", "create", "evidence.key")
    assert "No key is in use" in commands.fails(2, "key", "list")
    assert "No key is in use" in commands.fails(2, "key", "test")
    write_private("lakebackup.toml", '[signing]\nkey_file = "evidence.key"\n')
    assert [row["in_use"] for row in commands.rows("key", "list") if row["kind"] == "private"] == [True]
    assert "evidence.key signs" in commands.output("key", "test")


def test_a_passphrase_comes_from_a_file_or_the_environment_and_is_never_shown(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    passphrase_file = write_private("passphrase", f"{PASSPHRASE}\n")
    output = commands.output("key", "create", "evidence.key", "--passphrase-file", passphrase_file, "--json")
    assert json.loads(output)["passphrase"] is True
    error = commands.fails(2, "key", "test", "evidence.key")
    assert "LAKEBACKUP_SIGNING__PASSPHRASE" in error
    wrong = write_private("wrong", "another passphrase")
    assert "is wrong" in commands.fails(2, "key", "test", "evidence.key", "--passphrase-file", wrong)
    monkeypatch.setenv("LAKEBACKUP_SIGNING__PASSPHRASE", PASSPHRASE)
    for words in (["key", "test", "evidence.key"], ["config"], ["key", "list", "."]):
        for flags in ([], ["--json"], ["--wide"]):
            if words == ["config"] and flags == ["--wide"]:
                continue
            code, output, err = commands.run(*words, *flags)
            assert code == 0, err
            assert PASSPHRASE not in output + err
    assert 'signing."passphrase" = "****"' in commands.output("config")
    monkeypatch.setenv("LAKEBACKUP_SIGNING__PASSPHRASE_FILE", passphrase_file)
    assert "both passphrase and passphrase_file" in commands.fails(2, "key", "test", "evidence.key")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["key", "create", "evidence.key"], 5, "evidence.key exists already"),
        (["key", "create", "gone/evidence.key"], 6, "gone/evidence.key: No such file"),
        (["key", "create", "repository/evidence.key"], 2, "lies in the repository"),
        (["key", "test", "gone.key"], 3, "gone.key cannot be read: No such file"),
        (["key", "test", "evidence.key.pub"], 2, "is a public key"),
        (
            ["key", "test", "evidence.key", "other.key.pub"],
            5,
            "belongs to another private key",
        ),
        (["key", "test", "evidence.key", "other.key"], 2, "is a private key"),
        (["key", "test", "text"], 2, "not a private key in PEM form"),
        (["key", "test", "open.key"], 5, "Others may read the private key open.key"),
        (
            ["key", "test", "evidence.key", "--passphrase-file", "text"],
            2,
            "has no passphrase, but one is set",
        ),
        (["key", "create", "a", "--passphrase-file", "open.txt"], 5, "Others may read the passphrase file"),
        (["key", "list", "gone"], 3, "gone cannot be read"),
        (["key", "list", "text"], 2, "text is not a key in PEM form"),
    ],
)
def test_each_mistake_is_named(commands: Commands, words: list[str], code: int, text: str) -> None:
    for name in ("evidence.key", "other.key", "open.key"):
        commands.output("key", "create", name)
    Path("open.key").chmod(0o644)
    Path("open.txt").write_text(PASSPHRASE)
    Path("open.txt").chmod(0o644)
    write_private("text", "text")
    Path("repository").mkdir()
    Path("repository/lakebackup.json").write_text("{}")
    error = commands.fails(code, *words)
    assert text in error
    assert PASSPHRASE not in error
    assert not Path("a").exists()


def test_a_key_that_cannot_be_used_is_listed_with_its_problem(commands: Commands) -> None:
    commands.output("key", "create", "open.key")
    Path("open.key").chmod(0o644)
    write_private("text", "text")
    rows = {row["file"]: row for row in commands.rows("key", "list", ".")}
    assert rows.keys() == {"open.key", "open.key.pub"}
    assert "Others may read" in rows["open.key"]["problem"]
    assert rows["open.key.pub"]["problem"] is None


def test_an_identity_is_created_and_listed(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    (created,) = commands.rows("key", "create", "--purpose", "encryption", "restore.identity")
    text = Path("restore.identity").read_text()
    assert text.startswith(f"# recipient: {created['recipient']}\nAGE-SECRET-KEY-1")
    assert Path("restore.identity").stat().st_mode & 0o777 == 0o600
    assert "exists already" in commands.fails(
        5, "key", "create", "--purpose", "encryption", "restore.identity"
    )
    write_private("passphrase", PASSPHRASE)
    protected = ["key", "create", "--purpose", "encryption", "protected", "--passphrase-file", "passphrase"]
    assert commands.rows(*protected)[0]["passphrase"] is True
    commands.output("key", "create", "evidence.key")
    write_private("lakebackup.toml", '[encryption]\nidentity_file = "restore.identity"\n')
    rows = {row["file"]: row for row in commands.rows("key", "list")}
    row = rows[str(Path("restore.identity").absolute())]
    assert (row["key_id"], row["purpose"], row["in_use"]) == (created["recipient"], "encryption", True)
    row = rows[str(Path("protected").absolute())]
    assert (row["key_id"], row["purpose"], row["passphrase"]) == (None, "encryption", True)
    assert rows[str(Path("evidence.key").absolute())]["purpose"] == "signing"
    secret = text.split()[-1]
    for words in (["key", "list"], ["key", "list", "--wide"], ["config"]):
        assert secret not in commands.output(*words)
