"""Evidence end to end: real drills and checks leave statements, which `evidence check` reads without them."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.command_line import Commands
from tests.support.given_snapshots import FileContent, GivenSnapshots
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import filled
from tests.support.statements import payload_of, with_fields

from lakebackup.rows.upkeep import Policy
from lakebackup.signing.keys import SigningKey, create, load_public
from lakebackup.signing.statement import Evidence
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli.evidence import record
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.upkeep import drill, verify
from lakebackup_jobs.upkeep.evidence.page import page

FILES = [FileContent(name=f"{n}.sst", data=b"%d" % n * 100) for n in range(5)]
PASSPHRASE = "correct horse battery"


class Lab(NamedTuple):
    """Two snapshots of one source, a signing key in the settings, and a folder for what is written."""

    commands: Commands
    folder: Path
    repository: Path
    backups: tuple[str, str]

    @property
    def public_key(self) -> Path:
        return self.folder / "evidence.key.pub"

    def run(self, *words: str | Path, code: int = 0) -> tuple[Evidence, str]:
        """Run a verb with --evidence; returns what the statement says, and standard error."""
        file = self.folder / "statement.json"
        exit_code, _, err = self.commands.run(*words, "--repo", self.repository, "--evidence", file)
        assert exit_code == code, err
        statement = json.loads(payload_of(file.read_bytes()))
        return Evidence.model_validate(statement["predicate"]), err

    def check(self, *flags: str | Path) -> dict[str, Any]:
        words = ("evidence", "check", self.folder / "statement.json", "--public-key", self.public_key)
        (row,) = self.commands.rows(*words, *flags)
        return row

    def flip(self) -> None:
        """Change one bit of a stored file."""
        path = next(self.repository.rglob("*3.sst*"))
        data = bytearray(path.read_bytes())
        data[7] ^= 1
        path.write_bytes(data)


@pytest.fixture
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lab:
    snapshots = GivenSnapshots(tmp_path / "backups")
    backups = snapshots.backup(FILES[:3]), snapshots.backup(FILES)
    create(tmp_path / "evidence.key", PASSPHRASE)
    monkeypatch.setenv("LAKEBACKUP_SIGNING__KEY_FILE", str(tmp_path / "evidence.key"))
    monkeypatch.setenv("LAKEBACKUP_SIGNING__PASSPHRASE", PASSPHRASE)
    monkeypatch.setenv("LAKEBACKUP_SIGNING__HOST", "lab-1")
    return Lab(Commands(capsys), tmp_path, snapshots.folder, backups)


def test_a_drill_of_a_snapshot_is_attested(lab: Lab) -> None:
    evidence, _ = lab.run("drill", "--backup", lab.backups[1])
    (item,) = evidence.items
    assert (evidence.command, evidence.outcome, evidence.exit_code) == ("drill", "ok", 0)
    assert (evidence.host, evidence.repository) == ("lab-1", str(lab.repository))
    assert (item.source, item.backup_id, item.outcome, item.files, item.bytes) == (
        "yb",
        lab.backups[1],
        "ok",
        5,
        500,
    )
    reader = CatalogReader(str(lab.repository))
    (row,) = reader.select("SELECT drill_id FROM drills").read_all().to_pylist()
    assert item.drill_id == row["drill_id"]
    # The subject is what the catalog says of the backup.
    backup = reader.first_row("show_backup", backup_id=lab.backups[1])
    assert backup is not None
    (subject,) = json.loads(payload_of((lab.folder / "statement.json").read_bytes()))["subject"]
    assert subject["name"] == f"yb/{lab.backups[1]}"
    assert subject["digest"] == {"sha256": hashlib.sha256(backup["digest"].encode()).hexdigest()}
    assert "restore_snapshot_files" in {query.name for query in item.queries}
    assert {query.statement for query in item.queries} <= evidence.statements.keys()
    assert item.versions["snapshot_files"] is not None
    omissions = {omission.kind: omission for omission in evidence.not_done}
    assert omissions["restore points"].count == 1
    checked = lab.check()
    assert (checked["fault"], checked["page"]) == (None, "matches")
    assert checked["attested"]["items"][0]["outcome"] == "ok"


def test_a_drill_that_is_due_leaves_evidence_in_the_folder_of_the_settings(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, folder = ("--repo", lab.repository), lab.folder / "evidence"
    monkeypatch.setenv("LAKEBACKUP_SIGNING__EVIDENCE_FOLDER", str(folder))
    policy = filled(Policy, source="yb", at=1, drill_schedule="weekly", time_zone="UTC")
    CatalogWriter(None, str(lab.repository)).record(policy)
    lab.commands.output("approve", "--yes", *repository)
    assert "there is no such folder" in lab.commands.fails(3, "due", "--run", *repository)
    folder.mkdir()
    lab.commands.output("due", "--run", *repository)
    (file,) = folder.glob("*.json")
    assert file.name.startswith("drill-yb-2")
    (row,) = lab.commands.rows("evidence", "check", file, "--public-key", lab.public_key)
    assert row["attested"]["items"][0]["outcome"] == "ok"


def test_a_drill_of_topics_is_attested(lab: Lab) -> None:
    """Real data files, each of whose records is compared; no JVM."""
    backups = MadeBackups(lab.folder / "topics")
    backups.backup([[Record(p, n, 100 * n, b"k", b"v") for n in range(1, 9)] for p in (0, 1)])
    backups.flush()
    evidence, _ = lab._replace(repository=backups.folder).run("drill", "--runner", "local")
    (item,) = evidence.items
    assert (item.source, item.scope_names, item.entries, item.outcome) == ("prod", ("orders",), 16, "ok")
    assert "restore_files" in {query.name for query in item.queries}
    assert item.rows_digest
    assert lab.check()["fault"] is None


def test_a_verify_is_attested_with_what_it_did_not_do(lab: Lab) -> None:
    evidence, _ = lab.run("verify", lab.backups[0], "--stat")
    (item,) = evidence.items
    assert (item.source, item.backups, evidence.request["mode"]) == ("yb", 1, "stat")
    omissions = {omission.kind: omission for omission in evidence.not_done}
    assert omissions.keys() == {"contents", "decode", "restore", "backups", "orphans"}
    assert [o.names for o in evidence.not_done if o.count] == [(lab.backups[1],)]
    (lab.folder / "statement.json").unlink()
    (lab.folder / "statement.json.html").unlink()
    evidence, _ = lab.run("verify", "--restore")
    assert [item.backup_id for item in evidence.items] == [None, lab.backups[1]]
    assert "restore_snapshot_files" in {query.name for query in evidence.items[1].queries}
    reader = CatalogReader(str(lab.repository))
    ids = reader.select("SELECT DISTINCT check_id FROM checks").read_all()["check_id"].to_pylist()
    assert evidence.check_id in ids
    assert lab.check()["fault"] is None


def test_damage_is_attested_too(lab: Lab) -> None:
    lab.flip()
    evidence, _ = lab.run("verify", code=7)
    assert (evidence.outcome, evidence.exit_code) == ("different", 7)
    assert evidence.error == "Stored files are not intact: 1 changed."
    assert "3.sst" in evidence.findings[0]["path"]
    assert lab.check()["fault"] is None


def test_a_drill_that_differs_is_attested(lab: Lab) -> None:
    lab.flip()
    evidence, _ = lab.run("drill", "--backup", lab.backups[1], code=7)
    assert (evidence.outcome, evidence.items[0].outcome) == ("different", "different")
    assert "3.sst" in str(evidence.items[0].detail)


def test_a_drill_that_fails_is_attested(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = drill.shutil.disk_usage(lab.folder)._replace(free=1)
    monkeypatch.setattr(drill.shutil, "disk_usage", lambda _: usage)
    evidence, _ = lab.run("drill", code=4)
    assert (evidence.outcome, evidence.exit_code, evidence.items[0].outcome) == ("failed", 4, "failed")
    assert "No room in" in str(evidence.items[0].detail)
    assert evidence.items[0].compared == "Nothing was compared."
    assert lab.check()["attested"]["exit_code"] == 4


def test_an_unexpected_failure_is_attested(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError(f"broken with {PASSPHRASE}")

    monkeypatch.setattr(restore_snapshot, "_write", broken)
    file = lab.folder / "statement.json"
    code, _, _ = lab.commands.run("drill", "--repo", lab.repository, "--evidence", file)
    assert code == 1
    evidence = Evidence.model_validate(json.loads(payload_of(file.read_bytes()))["predicate"])
    assert (evidence.outcome, evidence.exit_code) == ("failed", 1)
    assert evidence.error == "broken with ****"
    assert json.loads(payload_of(file.read_bytes()))["subject"][0]["name"] == "request"


def test_an_error_of_the_system_has_the_exit_code_of_the_command(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("Too many open files")

    monkeypatch.setattr(verify._Check, "_run_tasks", broken)
    evidence, _ = lab.run("verify", code=6)
    assert (evidence.outcome, evidence.exit_code) == ("failed", 6)
    assert evidence.items[0].compared.startswith("Not completed. ")


def test_ctrl_c_leaves_no_statement(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(restore_snapshot, "_write", pressed)
    file = lab.folder / "statement.json"
    lab.commands.fails(130, "drill", "--repo", lab.repository, "--evidence", file)
    assert not file.exists()


def test_without_a_key_a_statement_says_that_it_is_unsigned(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKEBACKUP_SIGNING__KEY_FILE")
    evidence, err = lab.run("drill")
    assert evidence.integrity == "integrity only: unsigned"
    assert "unsigned" in err
    assert "integrity only: unsigned" in (lab.folder / "statement.json.html").read_text()
    words = ("evidence", "check", lab.folder / "statement.json", "--public-key", lab.public_key)
    code, output, err = lab.commands.run(*words, "--json")
    assert (code, output) == (7, "")
    assert json.loads(err)["error"] == "NotSigned"


def test_nothing_done_leaves_no_statement(lab: Lab) -> None:
    file = lab.folder / "statement.json"
    repo = ("--repo", lab.repository, "--evidence", file)
    lab.commands.fails(3, "drill", "nobody", *repo)
    lab.commands.fails(3, "verify", "2099", *repo)
    assert "--dry-run" in lab.commands.fails(2, "drill", "--dry-run", *repo)
    assert not file.exists()


def test_a_place_or_key_that_cannot_work_is_named_before_the_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, repo = lab.folder / "statement.json", ("--repo", lab.repository)
    inside = lab.repository / "statement.json"
    assert "lies in the repository" in lab.commands.fails(2, "drill", *repo, "--evidence", inside)
    assert "no such folder" in lab.commands.fails(3, "drill", *repo, "--evidence", lab.folder / "no/file")
    (lab.folder / "statement.json.html").write_text("an earlier page")
    assert "exists already" in lab.commands.fails(5, "verify", *repo, "--evidence", file)
    (lab.folder / "statement.json.html").unlink()
    (lab.folder / "evidence.key").chmod(0o644)
    assert "Others may read" in lab.commands.fails(5, "drill", *repo, "--evidence", file)
    (lab.folder / "evidence.key").chmod(0o600)
    monkeypatch.setenv("LAKEBACKUP_SIGNING__PASSPHRASE", "another one")
    assert "is wrong" in lab.commands.fails(2, "drill", *repo, "--evidence", file)
    assert CatalogReader(str(lab.repository)).select("SELECT * FROM drills").read_all().num_rows == 0
    assert not file.exists()


def test_a_statement_that_cannot_be_written_does_not_hide_how_the_run_ended(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(record, "write_new_file", full)
    lab.flip()
    file = lab.folder / "statement.json"
    err = lab.commands.fails(7, "verify", "--repo", lab.repository, "--evidence", file)
    assert "No evidence was written: No space left on device" in err
    assert "not intact" in err


def test_no_secret_is_in_a_statement_or_its_page(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEBACKUP_KAFKA__SASL_PASSWORD", "hunter2-hunter2")
    check = lab.folder / "check.sql"
    check.write_text(f"SELECT path FROM restored WHERE path = 'hunter2-hunter2 {PASSPHRASE}'")
    lab.run("drill", "--check", check)
    file = lab.folder / "statement.json"
    texts = [payload_of(file.read_bytes()).decode(), file.with_name("statement.json.html").read_text()]
    private = (lab.folder / "evidence.key").read_text().splitlines()[1]
    for text in texts:
        assert "hunter2" not in text
        assert PASSPHRASE not in text
        assert private not in text
    assert "****" in texts[0]


def test_a_secret_that_is_a_part_of_a_digest_leaves_the_digest_whole(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = CatalogReader(str(lab.repository))
    backup = reader.first_row("show_backup", backup_id=lab.backups[1])
    assert backup is not None
    monkeypatch.setenv("SOME_PASSWORD", backup["digest"][:5])
    monkeypatch.setenv("ANOTHER_PASSWORD", load_public(lab.public_key).key_id[:5])
    evidence, _ = lab.run("drill", "--backup", lab.backups[1])
    assert evidence.items[0].catalog_digest == backup["digest"]
    assert lab.check()["fault"] is None


def test_everything_in_the_page_is_escaped(lab: Lab) -> None:
    evidence, _ = lab.run("drill")
    attack = "<script>alert(1)</script>\u202e\x1b[31m&\"'"
    item = evidence.items[0].model_copy(
        update={"source": attack, "detail": attack, "scope_names": (attack,), "compared": attack}
    )
    omission = evidence.not_done[0].model_copy(update={"text": attack, "names": (attack,)})
    hostile = evidence.model_copy(
        update={
            "items": (item,), "not_done": (omission,), "error": attack, "host": attack, "account": attack,
            "repository": attack, "request": {attack: attack}, "findings": ({attack: attack},),
            "statements": {attack: attack}, "versions": {attack: 1}, "counts": {attack: 1},
        }
    )  # fmt: skip
    html = page(hostile, attack)
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "default-src 'none'" in html


def test_a_statement_of_another_run_under_the_name_of_a_newer_one_is_found(lab: Lab) -> None:
    lab.run("drill")
    words = ("evidence", "check", lab.folder / "statement.json", "--public-key", lab.public_key)
    assert lab.check("--after", "-1h")["fault"] is None
    assert "not after 2199" in lab.commands.fails(7, *words, "--after", "2199-01-01")
    (lab.folder / "statement.json.html").write_text("<p>All is well</p>")
    code, output, err = lab.commands.run(*words, "--json")
    assert (code, json.loads(output)["fault"], json.loads(err)["error"]) == (7, "WrongPage", "WrongPage")


def test_a_check_of_evidence_needs_the_file_and_the_key_alone(lab: Lab, tmp_path: Path) -> None:
    """In a process of its own, without settings, in which nothing of Spark, a catalog or a network loads."""
    lab.run("drill")
    program = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "pyarrow", "duckdb", "deltalake", "boto3", "numpy"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import socket
def refuse(*_): raise AssertionError("a socket")
socket.socket.connect = refuse
from lakebackup_jobs.cli import main
sys.exit(main(sys.argv[1:]))
"""
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in ("statement.json", "statement.json.html", "evidence.key.pub"):
        (empty / name).write_bytes((lab.folder / name).read_bytes())
    words = ["evidence", "check", "statement.json", "--public-key", "evidence.key.pub"]
    process = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False, cwd=empty
    )
    assert process.returncode == 0, process.stderr
    assert "It attests a drill that ended as ok" in process.stdout
    assert "yb: backup" in process.stdout
    assert "Not done: " in process.stdout


@pytest.mark.skipif(not (shutil.which("jq") and shutil.which("openssl")), reason="needs jq and OpenSSL")
def test_the_documented_commands_check_a_signature_without_lakebackup(lab: Lab) -> None:
    text = (Path(__file__).parents[4] / "docs/evidence.md").read_text("utf-8")
    commands = text.partition("**Without lakebackup**")[2].partition("```console\n")[2].partition("```")[0]

    def exit_code() -> int:
        shell = ["bash", "-e", "-o", "pipefail", "-c", commands]
        return subprocess.run(shell, cwd=lab.folder, capture_output=True, check=False).returncode

    lab.run("drill")
    file = (lab.folder / "statement.json").rename(lab.folder / "drill.json")
    assert exit_code() == 0
    other_payload = base64.b64encode(payload_of(file.read_bytes()).replace(b"lab-1", b"lab-2")).decode()
    file.write_bytes(with_fields(file.read_bytes(), payload=other_payload))
    assert exit_code() != 0


def test_faults_of_the_command_line_are_named(lab: Lab) -> None:
    lab.run("drill")
    file = lab.folder / "statement.json"
    key = SigningKey.generate()
    (lab.folder / "other.pub").write_bytes(key.public.pem())
    base = ("evidence", "check", file)
    assert "--public-key" in lab.commands.fails(2, *base)
    assert "is a private key" in lab.commands.fails(2, *base, "--public-key", lab.folder / "evidence.key")
    assert "No such file" in lab.commands.fails(3, *base, "--public-key", lab.folder / "gone")
    assert "No such file" in lab.commands.fails(
        3, "evidence", "check", lab.folder / "gone", "--public-key", lab.public_key
    )
    unknown = lab.commands.fails(7, *base, "--public-key", lab.folder / "other.pub")
    assert load_public(lab.public_key).key_id[:16] in unknown
    retired = ("--public-key", lab.folder / "other.pub", "--retired-key", lab.public_key)
    assert "retired" in lab.commands.fails(7, *base, *retired)


def test_sources_and_tables_that_are_omissions_are_named(lab: Lab) -> None:
    zoo = GivenSnapshots(lab.repository, "zoo", CatalogWriter(None, str(lab.repository)))
    zoo.number = 10
    zoo.backup([FileContent(name="z.log", data=b"z")])
    evidence, _ = lab.run("drill", "yb", "--backup", lab.backups[0])
    omissions = {omission.text: omission.names for omission in evidence.not_done}
    assert omissions["Sources that were not requested."] == ("zoo",)
