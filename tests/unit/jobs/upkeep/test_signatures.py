"""Signed repositories end to end: what a writer of the storage changes is found with the public key alone.

Layer: make test, without Java. Each case is a copy of one repository, made by commands.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.command_line import Commands
from tests.support.faults import Killed

from lakebackup.rows.base import Row
from lakebackup.rows.upkeep import Policy
from lakebackup.rules import layout
from lakebackup.rules.layout import AUDIT_FOLDER
from lakebackup.signing.faults import ChainFault
from lakebackup.signing.keys import create
from lakebackup.storage import Storage, open_storage
from lakebackup.store import caller, signatures, writer
from lakebackup.store import manifest as sidecar
from lakebackup.store.writer import CatalogWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "files"
_original: tuple[Path, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Lab:
    """A repository whose backups a key signs, and commands on it. `host` chooses the key that signs."""

    commands: Commands
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def repository(self) -> Path:
        return self.folder / "backups"

    def host(self, key: str | None) -> None:
        """Sign with this key from now on; None: with none."""
        if key is None:
            self.monkeypatch.delenv("LAKEBACKUP_SIGNING__KEY_FILE", raising=False)
            return
        if not (self.folder / key).exists():
            create(self.folder / key, None)
        self.monkeypatch.setenv("LAKEBACKUP_SIGNING__KEY_FILE", str(self.folder / key))

    def backup(self, text: str) -> str:
        """Back up a tree in which one file has a new text; return the backup's id."""
        tree = self.folder / "tree"
        tree.mkdir(exist_ok=True)
        (tree / "a").write_text("always the same")
        (tree / "b").write_text(text)
        words = ("backup", "snapshot", tree, "--source", SOURCE, "--repo", self.repository)
        return str(self.commands.result(*words)["backup_id"])

    def run(self, *words: str | Path) -> str:
        """Run a command on the repository; return its output."""
        return self.commands.output(*words, "--repo", self.repository)

    def prune(self) -> None:
        """Delete all backups but the newest."""
        self.run("prune", "--source", SOURCE, "--delete")

    def verify(self, *flags: str | Path, key: str = "host.key", code: int = 0) -> dict[str, Any]:
        """Check the signatures with a public key; returns the result, also if there is a fault."""
        words = ("verify", "--signatures", "--public-key", self.folder / f"{key}.pub")
        exit_code, output, err = self.commands.run(*words, "--repo", self.repository, *flags, "--json")
        assert exit_code == code, err
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result

    def fault(self, *flags: str | Path, source: str = SOURCE) -> str:
        """Check the signatures, which must have a fault of a source, or of the audit log; return its kind."""
        findings = self.verify(*flags, code=7)["findings"]
        (fault,) = [str(finding["fault"]) for finding in findings if finding["source"] == source]
        return fault

    def manifest(self, backup_id: str) -> Path:
        return self.repository / layout.manifest_path(SOURCE, backup_id)

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(str(self.repository / "catalog" / name))


@pytest.fixture
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lab:
    new_lab = Lab(Commands(capsys), tmp_path, monkeypatch)
    new_lab.host("host.key")
    return new_lab


@dataclass(frozen=True)
class Signed:
    """A repository with three signed backups, and a checkpoint of it."""

    lab: Lab
    ids: tuple[str, ...]
    checkpoint: Path


@pytest.fixture
def signed(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Signed:
    """A copy of the repository, which is made once in a process of tests."""
    global _original
    if _original is None:
        ids = tuple(lab.backup(f"text {number}") for number in range(3))
        lab.run("policy", "set", SOURCE, "--redundancy", "1")
        lab.run("hold", ids[0], "--forever", "--reason", "a year's last")
        lab.run("hold", ids[0], "--release", "--reason", "the year is over")
        lab.verify("--save-checkpoint", lab.folder / "checkpoint.json")
        _original = tmp_path_factory.mktemp("signed") / "original", ids
        shutil.copytree(lab.folder, _original[0])
    else:
        shutil.copytree(_original[0], lab.folder, dirs_exist_ok=True)
    lab.host(None)
    return Signed(lab, _original[1], lab.folder / "checkpoint.json")


def test_signed_backups_are_in_order(signed: Signed) -> None:
    result = signed.lab.verify("--checkpoint", signed.checkpoint)
    assert (result["backups"], result["links"], result["unsigned"], result["findings"]) == (3, 3, 0, [])
    assert (result["audit_entries"], result["unsigned_audit_entries"]) == (7, 0)  # 4 of commands, 3 rows
    links, earlier_links = (
        json.loads(text)["links"] for text in (result["checkpoint"], signed.checkpoint.read_text())
    )
    assert links[SOURCE] == earlier_links[SOURCE]
    assert (
        links[AUDIT_FOLDER]["number"] == earlier_links[AUDIT_FOLDER]["number"] + 1
    )  # that of the first check
    text = signed.lab.commands.output(
        "verify", "--signatures", "--public-key", signed.lab.folder / "host.key.pub",
        "--repo", signed.lab.repository,
    )  # fmt: skip
    assert "3 backups in 3 links of signatures by " in text


def test_deletions_are_signed(lab: Lab) -> None:
    for number in range(3):
        lab.backup(f"text {number}")
    lab.run("policy", "set", SOURCE, "--redundancy", "1")
    lab.prune()
    result = lab.verify()
    assert (result["links"], result["backups"], result["findings"]) == (4, 3, [])


def test_a_backup_goes_on_after_the_newest_link_was_damaged(signed: Signed) -> None:
    """Whoever damages the chain must not stop the backups."""
    lab = signed.lab
    lab.host("host.key")
    (lab.repository / layout.signature_path(SOURCE, 3)).write_bytes(b"{}")
    lab.backup("text 3")
    assert lab.fault() == "Malformed"


def test_a_missing_key_stops_a_backup_before_it_writes(lab: Lab) -> None:
    lab.backup("text")
    parts = sorted(lab.repository.rglob("*.jsonl"))
    lab.monkeypatch.setenv("LAKEBACKUP_SIGNING__KEY_FILE", str(lab.folder / "gone.key"))
    words = ("backup", "snapshot", lab.folder / "tree", "--source", SOURCE, "--repo", lab.repository)
    assert "gone.key cannot be read" in lab.commands.fails(3, *words)
    assert sorted(lab.repository.rglob("*.jsonl")) == parts


def test_a_run_that_ends_before_its_signature_is_completed_by_the_next(lab: Lab) -> None:
    with lab.monkeypatch.context() as patch:
        patch.setattr(signatures, "append", _killed)
        with pytest.raises(Killed):
            lab.backup("text 0")
    lab.backup("text 1")
    result = lab.verify()
    assert (result["links"], result["backups"], result["unsigned"]) == (2, 2, 0)


def _killed(*_: object) -> None:
    raise Killed


@pytest.mark.spark
def test_a_rebuild_takes_only_what_is_signed(signed: Signed, spark: SparkSession) -> None:
    lab = signed.lab
    unsigned_id = lab.backup("text without a key")
    record_without_a_key(Policy(source=SOURCE, at=1 << 60, actor="me", redundancy=9))(lab, signed.ids)
    (lab.repository / layout.marker_path(SOURCE, signed.ids[0], "complete")).unlink()
    (lab.repository / layout.marker_path(SOURCE, signed.ids[1], "deleted")).touch()
    shutil.rmtree(lab.repository / "catalog")
    lab.monkeypatch.setenv("LAKEBACKUP_SIGNING__PUBLIC_KEYS", json.dumps([str(lab.folder / "host.key.pub")]))
    err = replace(lab.commands, spark=spark).fails(4, "catalog", "rebuild", "--repo", lab.repository)
    assert f"{SOURCE}/backups/{unsigned_id}/manifest.json is not signed by a trusted key" in err
    rows = lab.commands.rows("sql", "SELECT backup_id, state FROM backups", "--repo", lab.repository)
    assert "entries are not signed by a trusted key" in err
    assert {row["backup_id"]: row["state"] for row in rows} == dict.fromkeys(signed.ids, "complete")
    policies = lab.commands.rows("sql", "SELECT redundancy FROM policies", "--repo", lab.repository)
    assert [row["redundancy"] for row in policies] == [1]
    # The catalog does not know which commits the old one had, and must not append the newest entry again.
    lab.host("host.key")
    lab.run("hold", signed.ids[0], "--forever", "--reason", "again")
    (counts,) = lab.commands.rows(
        "sql",
        "SELECT count(*) AS n, count(DISTINCT (at, action)) AS kinds FROM audit",
        "--repo",
        lab.repository,
    )
    assert counts["n"] == counts["kinds"]
    lab.host(None)
    assert lab.verify("--checkpoint", signed.checkpoint)["findings"] == []


def test_backups_before_the_first_key_are_counted(lab: Lab) -> None:
    lab.host(None)
    lab.backup("text 0")
    lab.host("host.key")
    lab.backup("text 1")
    result = lab.verify()
    assert (result["backups"], result["unsigned"], result["findings"]) == (1, 1, [])


def test_a_new_key_vouches_for_the_links_of_a_retired_one(lab: Lab) -> None:
    lab.backup("text 0")
    lab.host("new.key")
    retired = ("--retired-key", lab.folder / "host.key.pub")
    lab.backup("text 1")
    assert lab.verify(*retired, key="new.key")["findings"] == []
    lab.host("host.key")
    lab.backup("text 2")
    findings = lab.verify(*retired, key="new.key", code=7)["findings"]
    assert {finding["source"]: finding["fault"] for finding in findings} == {
        AUDIT_FOLDER: "RetiredKey",
        SOURCE: "RetiredKey",
    }


def rewrite_manifest(lab: Lab, ids: tuple[str, ...]) -> None:
    """Rewrite a manifest with a valid checksum of its own, as a forger would."""
    storage, path = open_storage(str(lab.repository)), layout.manifest_path(SOURCE, ids[1])
    content = sidecar.get_sealed(storage, path, newest=2)
    content["backup"]["note"] = "forged"
    sidecar.put_sealed(storage, path, {"format": 2, **content})


def rewrite_part(lab: Lab, ids: tuple[str, ...]) -> None:
    (part,) = (lab.repository / layout.parts_folder(SOURCE, ids[2])).iterdir()
    text = part.read_text()
    digest = json.loads(text.splitlines()[0])["sha256"]
    part.write_text(text.replace(digest, "0" * 64))


def remove(lab: Lab, *names: str) -> None:
    for name in names:
        (lab.repository / name).unlink()


def update(table: str, updates: dict[str, str], predicate: str = "source = 'files'") -> Callable[..., None]:
    """Change rows of a table of the catalog, as any program that writes Delta can."""

    def change(lab: Lab, ids: tuple[str, ...]) -> None:
        condition = predicate.format(*ids)
        assert lab.table(table).update(updates=updates, predicate=condition)["num_updated_rows"]

    return change


def replace_by_another_host(lab: Lab, ids: tuple[str, ...]) -> None:
    """Another host, whose key nobody trusts, goes on."""
    del ids
    lab.host("stranger.key")
    lab.backup("text of a stranger")


def add_unsigned(lab: Lab, ids: tuple[str, ...]) -> None:
    del ids
    lab.backup("text without a key")


def delete_unsigned(lab: Lab, ids: tuple[str, ...]) -> None:
    del ids
    lab.prune()


def exchange_manifests(lab: Lab, ids: tuple[str, ...]) -> None:
    first, second = lab.manifest(ids[0]), lab.manifest(ids[1])
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def lists_of(lab: Lab, backup_id: str) -> list[Path]:
    """The objects that list the files of a snapshot."""
    query = f"SELECT path FROM files WHERE backup_id = '{backup_id}' AND format = 'snapshot-files'"
    return [lab.repository / row["path"] for row in lab.commands.rows("sql", query, "--repo", lab.repository)]


def exchange_lists(lab: Lab, ids: tuple[str, ...]) -> None:
    (first,), (second,) = lists_of(lab, ids[0]), lists_of(lab, ids[1])
    second.write_bytes(first.read_bytes())


def start_over(lab: Lab, ids: tuple[str, ...]) -> None:
    """The chain and the backups are replaced by others that the same host signs."""
    del ids
    shutil.rmtree(lab.repository)
    lab.host("host.key")
    for number in range(3):
        lab.backup(f"another text {number}")


def take_newest_away(lab: Lab, ids: tuple[str, ...]) -> None:
    """The newest backup is gone from the chain, from the storage and from the catalog."""
    remove(lab, layout.signature_path(SOURCE, 3))
    shutil.rmtree(lab.manifest(ids[2]).parent)
    for table in ("backups", "files", "scopes", "positions"):
        lab.table(table).delete(f"backup_id = '{ids[2]}'")


TAMPERINGS: dict[str, tuple[Callable[[Lab, tuple[str, ...]], object], str]] = {
    "a manifest is rewritten": (rewrite_manifest, "SubjectChanged"),
    "the rows beside a manifest are rewritten": (rewrite_part, "SubjectChanged"),
    "a manifest is gone": (lambda lab, ids: lab.manifest(ids[0]).unlink(), "SubjectMissing"),
    "two manifests are exchanged": (exchange_manifests, "SubjectChanged"),
    "a part is gone": (
        lambda lab, ids: remove(lab, layout.parts_path(SOURCE, ids[1], 0)),
        "SubjectChanged",
    ),
    "a link is gone": (lambda lab, _: remove(lab, layout.signature_path(SOURCE, 2)), "MissingLink"),
    "all links are gone": (
        lambda lab, _: shutil.rmtree(lab.repository / layout.signatures_folder(SOURCE)),
        "BehindCheckpoint",
    ),
    "the newest backup is gone everywhere": (take_newest_away, "BehindCheckpoint"),
    "the repository is another one of the same host": (start_over, "OtherHistory"),
    "a stranger goes on": (replace_by_another_host, "UnknownKey"),
    "a host without a key goes on": (add_unsigned, "NoLink"),
    "a host without a key deletes": (delete_unsigned, "NoLink"),
    "the catalog has another digest of a file": (
        update("files", {"sha256": f"'{'0' * 64}'"}, "backup_id = '{1}'"),
        "RowsChanged",
    ),
    "the catalog has another path of a file": (update("files", {"path": "'elsewhere'"}), "RowsChanged"),
    "the catalog lacks a file": (
        lambda lab, ids: lab.table("files").delete(f"backup_id = '{ids[2]}'"),
        "RowsChanged",
    ),
    "the catalog has another end of a backup": (update("backups", {"end_ts": "5"}), "RowsChanged"),
    "the catalog has another parent of a backup": (
        update("backups", {"parent": "'{0}'"}, "backup_id = '{2}'"),
        "RowsChanged",
    ),
    "the catalog has another scope": (
        update("scopes", {"regions": "99"}, "backup_id = '{0}'"),
        "RowsChanged",
    ),
    "the catalog has another mode of a snapshot's file": (
        update("snapshot_files", {"mode": "511"}, "backup_id = '{0}'"),
        "RowsChanged",
    ),
    "the catalog has another place of a snapshot's file": (
        update("snapshot_files", {"position": "position + 1"}, "backup_id = '{1}'"),
        "RowsChanged",
    ),
    "the catalog lacks a folder of a snapshot": (
        lambda lab, ids: lab.table("snapshot_folders").delete(f"backup_id = '{ids[0]}'"),
        "RowsChanged",
    ),
    "the catalog lacks the end of a snapshot's file": (
        lambda lab, ids: lab.table("snapshot_departures").delete(f"gone_by = '{ids[2]}'"),
        "RowsChanged",
    ),
    "the list of a snapshot's files is another": (exchange_lists, "SubjectChanged"),
    "the list of a snapshot's files is gone": (
        lambda lab, ids: lists_of(lab, ids[1])[0].unlink(),
        "SubjectMissing",
    ),
    "the catalog lacks a backup": (
        lambda lab, ids: lab.table("backups").delete(f"backup_id = '{ids[1]}'"),
        "RowsChanged",
    ),
    "the catalog says that a backup is deleted": (
        update("backups", {"state": "'deleted'"}, "backup_id = '{1}'"),
        "RowsChanged",
    ),
    "the catalog says that a backup is unconfirmed": (
        update("backups", {"state": "'unconfirmed'"}, "backup_id = '{1}'"),
        "RowsChanged",
    ),
}


NEWEST = (6, 7)


def in_audit(number: int) -> str:
    return layout.signature_path(AUDIT_FOLDER, number)


def exchange_links(lab: Lab, ids: tuple[str, ...]) -> None:
    del ids
    first, second = lab.repository / in_audit(4), lab.repository / in_audit(5)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def record_without_a_key(*rows: Row) -> Callable[..., None]:
    """Record rows as a host without a key does: a policy that keeps less, a hold that is released."""

    def change(lab: Lab, ids: tuple[str, ...]) -> None:
        del ids
        caller.sign_with(lambda: None)
        for row in rows:
            CatalogWriter(None, str(lab.repository)).record(row)

    return change


def copy_row(lab: Lab, table: str, **values: Any) -> None:
    """Append a copy of a table's first row with other values, as any program that writes Delta can."""
    rows = lab.table(table).to_pyarrow_table()
    row = {**rows.slice(0, 1).to_pylist()[0], **values}
    write_deltalake(lab.table(table), pa.Table.from_pylist([row], rows.schema), mode="append")


AUDIT_TAMPERINGS: dict[str, tuple[Callable[[Lab, tuple[str, ...]], object], str]] = {
    "a link is gone": (lambda lab, _: remove(lab, in_audit(3)), "MissingLink"),
    "the newest links are gone": (
        lambda lab, _: remove(lab, *map(in_audit, NEWEST)),
        "BehindCheckpoint",
    ),
    "all links are gone": (
        lambda lab, _: shutil.rmtree(lab.repository / layout.signatures_folder(AUDIT_FOLDER)),
        "BehindCheckpoint",
    ),
    "two links are exchanged": (exchange_links, "WrongOrder"),
    "a link is torn": (lambda lab, _: (lab.repository / in_audit(2)).write_bytes(b"{"), "Malformed"),
    "a link of a source is in its place": (
        lambda lab, _: shutil.copy(
            lab.repository / layout.signature_path(SOURCE, 2), lab.repository / in_audit(2)
        ),
        "Malformed",
    ),
    "the catalog lacks an entry": (
        lambda lab, _: lab.table("audit").delete("action = 'set_policy'"),
        "RowsChanged",
    ),
    "the catalog has another actor": (
        update("audit", {"actor": "'nobody'"}, "action = 'backup snapshot'"),
        "RowsChanged",
    ),
    "the catalog has another policy": (update("policies", {"redundancy": "2"}), "NoLink"),
    "the catalog has a policy more": (lambda lab, _: copy_row(lab, "policies", redundancy=9), "NoLink"),
    "an old policy was inserted": (lambda lab, _: copy_row(lab, "policies", at=1, note="old"), "NoLink"),
    "the catalog lacks a policy": (lambda lab, _: lab.table("policies").delete(), "RowsChanged"),
    "the catalog lacks the end of a hold": (
        lambda lab, _: lab.table("holds").delete("released"),
        "RowsChanged",
    ),
    "a host without a key sets a policy": (
        record_without_a_key(Policy(source=SOURCE, at=1, actor="me")),
        "NoLink",
    ),
    "the catalog has a change of state": (
        lambda lab, ids: copy_row(
            lab, "audit", at=1 << 60, action="set_state", subject=ids[0], detail='{"state": "deleted"}'
        ),
        "NoLink",
    ),
}


@pytest.mark.parametrize("tampering", AUDIT_TAMPERINGS)
def test_each_tampering_with_the_audit_log_is_found_and_named(signed: Signed, tampering: str) -> None:
    change, fault = AUDIT_TAMPERINGS[tampering]
    change(signed.lab, signed.ids)
    assert signed.lab.fault("--checkpoint", signed.checkpoint, source=AUDIT_FOLDER) == fault


def test_entries_from_before_the_first_key_are_vouched_for(lab: Lab) -> None:
    """Or else a policy of long ago would never be signed, and a forged one could claim to be older."""
    lab.host(None)
    lab.backup("text 0")
    lab.run("policy", "set", SOURCE, "--redundancy", "1")
    lab.host("host.key")
    lab.backup("text 1")
    result = lab.verify()
    # Signed are the policy and the second backup; not the first backup, nor the command that set the policy.
    assert (result["audit_entries"], result["unsigned_audit_entries"], result["findings"]) == (2, 1, [])
    copy_row(lab, "policies", at=1)
    assert lab.fault(source=AUDIT_FOLDER) == "NoLink"


def test_hosts_that_only_restore_need_no_key(signed: Signed) -> None:
    lab = signed.lab
    lab.run("restore", "snapshot", "--backup", signed.ids[2], "--to", lab.folder / "out")
    result = lab.verify("--checkpoint", signed.checkpoint)
    assert (result["unsigned_audit_entries"], result["findings"]) == (1, [])


def test_two_repositories_with_one_catalog_are_checked_each(lab: Lab) -> None:
    """The catalog has the policies of both, and each signs those that were set through it."""
    lab.monkeypatch.setenv("LAKEBACKUP_CATALOG", str(lab.folder / "catalog"))
    lab.backup("text 0")
    lab.run("policy", "set", SOURCE, "--redundancy", "1")
    other = ("--repo", lab.folder / "other")
    words = ("backup", "snapshot", lab.folder / "tree", "--source", "others")
    lab.commands.output(*words, *other)
    lab.commands.output("policy", "set", "others", "--redundancy", "2", *other)
    assert lab.verify()["findings"] == []
    (lab.folder / "other" / in_audit(1)).unlink()
    assert lab.fault(source=AUDIT_FOLDER) == "NoLink"  # nobody vouches for the other's policy any more


def test_a_command_goes_on_after_the_newest_entry_was_damaged(signed: Signed) -> None:
    """Whoever damages the audit log must not stop holds, prunes and backups."""
    lab = signed.lab
    lab.host("host.key")
    newest = max((lab.repository / layout.signatures_folder(AUDIT_FOLDER)).iterdir())
    newest.write_bytes(b"{}")
    lab.run("hold", signed.ids[0], "--forever", "--reason", "an incident")
    assert lab.fault(source=AUDIT_FOLDER) == "Malformed"
    words = ("verify", "--stat", "--repo", lab.repository)
    assert "recorded in the audit log without a signature" in lab.commands.run(*words)[2]


@pytest.mark.parametrize("table", ["audit", "holds"])
def test_an_entry_whose_run_was_killed_is_completed_by_the_next(lab: Lab, table: str) -> None:
    """The run is killed between the link and the row in the catalog."""
    backup_id = lab.backup("text 0")
    with lab.monkeypatch.context() as patch:
        patch.setattr(writer, "append", killed_at(table, "an incident"))
        with pytest.raises(Killed):
            lab.run("hold", backup_id, "--forever", "--reason", "an incident")
    assert lab.verify()["findings"] == []
    lab.run("policy", "set", SOURCE, "--redundancy", "1")
    assert lab.verify()["findings"] == []
    (hold,) = lab.commands.rows("sql", "SELECT reason FROM holds", "--repo", lab.repository)
    assert hold["reason"] == "an incident"


def killed_at(table: str, text: str) -> Callable[..., object]:
    """The function that appends rows, except that the process dies before it appends a row with a text."""

    def append(storage: Storage, name: str, rows: Sequence[Row], transaction: str) -> object:
        if name == table and any(text in str(row) for row in rows):
            raise Killed
        return original(storage, name, rows, transaction)

    original = writer.append
    return append


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_each_tampering_is_found_and_named(signed: Signed, tampering: str) -> None:
    change, fault = TAMPERINGS[tampering]
    change(signed.lab, signed.ids)
    assert signed.lab.fault("--checkpoint", signed.checkpoint) == fault


def test_the_corpus_has_every_fault_of_a_chain() -> None:
    faults = {fault for _, fault in TAMPERINGS.values()} - {"UnknownKey"}
    of_links_alone = {"BrokenChain", "WrongOrder"}  # their cases are in test_chain.py
    assert faults | of_links_alone == {kind.__name__ for kind in ChainFault.__subclasses__()}


def test_nothing_signed_is_an_error(lab: Lab) -> None:
    lab.host(None)
    lab.backup("text")
    words = ("verify", "--signatures", "--public-key", lab.folder / "host.key.pub", "--repo", lab.repository)
    assert "No backup in" in lab.commands.fails(3, *words)


@pytest.mark.parametrize(
    ("flags", "code", "text"),
    [
        (("--signatures",), 2, "--signatures needs the public keys that you trust"),
        (("--public-key", "{}/host.key.pub"), 2, "need --signatures"),
        (("--checkpoint", "x"), 2, "need --signatures"),
        (("--signatures", "--stat"), 2, "exclude each other"),
        (("--signatures", "latest", "--public-key", "{}/host.key.pub"), 2, "takes no ID"),
        (("--signatures", "--evidence", "{}/e.json", "--public-key", "{}/host.key.pub"), 2, "no --evidence"),
        (("--signatures", "--public-key", "{}/host.key"), 2, "is a private key"),
        (("--signatures", "--public-key", "{}/none"), 3, "cannot be read"),
        (
            ("--signatures", "--public-key", "{}/host.key.pub", "--checkpoint", "{}/none"),
            3,
            "--checkpoint",
        ),
        (
            ("--signatures", "--public-key", "{}/host.key.pub", "--checkpoint", "{}/host.key.pub"),
            7,
            "The checkpoint is not JSON",
        ),
        (
            ("--signatures", "--public-key", "{}/host.key.pub", "--save-checkpoint", "{}/host.key"),
            2,
            "the file exists",
        ),
        (
            ("--signatures", "--public-key", "{}/host.key.pub", "--save-checkpoint", "{}/no/file"),
            6,
            "cannot be written",
        ),
    ],
)
def test_wrong_flags_are_named(lab: Lab, flags: tuple[str, ...], code: int, text: str) -> None:
    lab.backup("text")
    words = [word.format(lab.folder) for word in flags]
    assert text in lab.commands.fails(code, "verify", *words, "--repo", lab.repository)


def test_the_settings_name_the_keys(signed: Signed) -> None:
    lab = signed.lab
    lab.monkeypatch.setenv("LAKEBACKUP_SIGNING__PUBLIC_KEYS", json.dumps([str(lab.folder / "host.key.pub")]))
    assert lab.commands.result("verify", "--signatures", "--repo", lab.repository)["findings"] == []


def proof_of(signed: Signed) -> Path:
    """The file of a proof that a file of the second backup was in it."""
    lab, file = signed.lab, signed.lab.folder / "proof.json"
    query = f"SELECT path FROM files WHERE backup_id = '{signed.ids[1]}' ORDER BY path DESC LIMIT 1"
    (row,) = lab.commands.rows("sql", query, "--repo", lab.repository)
    lab.commands.output("evidence", "prove", row["path"], file, "--repo", lab.repository)
    return file


def test_a_file_is_proved_without_the_repository(signed: Signed) -> None:
    file = proof_of(signed)
    shutil.rmtree(signed.lab.repository)
    words = ("evidence", "check", file, "--public-key", signed.lab.folder / "host.key.pub")
    (result,) = signed.lab.commands.rows(*words)
    assert result["proved"]["link"]["subject"] == result["proved"]["row"]["backup_id"] == signed.ids[1]
    assert "One of its " in signed.lab.commands.output(*words)
    assert "was signed at" in signed.lab.commands.fails(7, *words, "--after", "2999-01-01")


PROOF_TAMPERINGS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another digest": (lambda f: f.update(row=f["row"].replace('"sha256":"', '"sha256":"0')), "WrongProof"),
    "another index": (lambda f: f.update(index=f["index"] + 1), "WrongProof"),
    "a hash more": (lambda f: f["hashes"].append("0" * 64), "WrongProof"),
    "a signature less": (lambda f: f["link"].update(signatures=[]), "NotSigned"),
    "another payload": (lambda f: f["link"].update(payloadSha256="0" * 64), "PayloadChanged"),
    "a field more": (lambda f: f.update(more=1), "Malformed"),
    "an index that is no number": (lambda f: f.update(index="0"), "Malformed"),
}


@pytest.mark.parametrize("tampering", PROOF_TAMPERINGS)
def test_a_changed_proof_is_refused(signed: Signed, tampering: str) -> None:
    change, fault = PROOF_TAMPERINGS[tampering]
    file = proof_of(signed)
    fields = json.loads(file.read_text())
    change(fields)
    file.write_text(json.dumps(fields))
    words = ("evidence", "check", file, "--public-key", signed.lab.folder / "host.key.pub", "--json")
    assert json.loads(signed.lab.commands.fails(7, *words))["error"] == fault


def test_what_cannot_be_proved_is_named(signed: Signed) -> None:
    lab = signed.lab
    words = ("evidence", "prove", "no/such/file", lab.folder / "p.json", "--repo", lab.repository)
    assert "The catalog has no file 'no/such/file'" in lab.commands.fails(3, *words)
    backup_id = lab.backup("text without a key")
    query = f"SELECT path FROM files WHERE backup_id = '{backup_id}' LIMIT 1"
    (row,) = lab.commands.rows("sql", query, "--repo", lab.repository)
    words = ("evidence", "prove", row["path"], lab.folder / "p.json", "--repo", lab.repository)
    assert "is not signed" in lab.commands.fails(3, *words)
    file = proof_of(signed)
    words = ("evidence", "prove", row["path"], file, "--repo", lab.repository)
    lab.commands.fails(3, *words)
