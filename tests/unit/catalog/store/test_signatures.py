"""Chains in a repository: each object is appended once, by however many runs, whatever the hint says.

Layer: unit, on a folder and on the S3 server. A link that is lost or doubled here would be a false alarm.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakebackup.errors import NotFound
from lakebackup.rules import layout
from lakebackup.signing import chain, merkle
from lakebackup.signing.faults import Malformed, MissingLink, SubjectChanged, SubjectMissing
from lakebackup.signing.keys import SigningKey, TrustedKeys
from lakebackup.storage import Storage
from lakebackup.store import signatures

KEY = SigningKey.generate()
TRUSTED = TrustedKeys.of([KEY.public])


def append(storage: Storage, name: str) -> chain.Link:
    storage.put(f"prod/{name}", name.encode())
    return signatures.append(storage, "prod", "deletion", name, f"prod/{name}", KEY)


def subjects(storage: Storage) -> list[str]:
    objects = signatures.links(storage, "prod")
    return [signed.link.subject for signed in chain.check(chain.Link, "prod", objects, TRUSTED)]


def test_links_follow_one_another(storage: Storage) -> None:
    assert [append(storage, name).number for name in ("b1", "b2", "b3")] == [1, 2, 3]
    assert subjects(storage) == ["b1", "b2", "b3"]


def test_an_object_is_signed_once_until_it_changes(storage: Storage) -> None:
    first = append(storage, "b1")
    assert append(storage, "b1") == first
    storage.put("prod/b1", b"other")
    assert signatures.append(storage, "prod", "deletion", "b1", "prod/b1", KEY).number == 2


def test_the_rows_of_a_backup_are_signed(storage: Storage) -> None:
    backup_id = "20260131T134511Z-0a1b2c3d"
    path = layout.manifest_path("prod", backup_id)
    storage.put(path, b"manifest")
    for task, lines in enumerate((b"a\nb\n", b"", b"c\n")):
        storage.put(layout.parts_path("prod", backup_id, task), lines)
    link = signatures.append(storage, "prod", "backup", backup_id, path, KEY)
    assert (link.rows, link.rows_root) == merkle.root([b"a", b"b", b"c"])


def test_what_does_not_exist_is_not_signed(storage: Storage) -> None:
    with pytest.raises(NotFound):
        signatures.append(storage, "prod", "deletion", "b1", "prod/b1", KEY)
    assert subjects(storage) == []


def test_runs_at_the_same_time_append_to_one_chain(storage: Storage) -> None:
    names = [f"b{number}" for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        numbers = sorted(link.number for link in pool.map(lambda name: append(storage, name), names))
    assert numbers == list(range(1, 13))
    assert sorted(subjects(storage)) == sorted(names)


@pytest.mark.parametrize(
    "hint", [b"", b"null", b'{"number": 1}', b'{"number": 99}', b'{"number": "2"}', b"\xff"]
)
def test_a_wrong_hint_changes_nothing(storage: Storage, hint: bytes) -> None:
    append(storage, "b1")
    append(storage, "b2")
    storage.put(layout.newest_signature_path("prod"), hint)
    assert append(storage, "b3").number == 3
    assert subjects(storage) == ["b1", "b2", "b3"]
    assert json.loads(storage.get(layout.newest_signature_path("prod"))) == {"number": 3}


def test_other_objects_beside_links_are_none(storage: Storage) -> None:
    append(storage, "b1")
    storage.put(f"{layout.signatures_folder('prod')}README", b"x")
    assert append(storage, "b2").number == 2
    assert subjects(storage) == ["b1", "b2"]


def test_a_damaged_newest_link_is_named(storage: Storage) -> None:
    append(storage, "b1")
    storage.put(layout.signature_path("prod", 1), b"{}")
    with pytest.raises(Malformed, match=r"^prod/signatures/0000000001\.json: "):
        append(storage, "b2")


def test_what_was_signed_before_a_fault_counts(storage: Storage) -> None:
    for name in ("b1", "b2", "b3"):
        append(storage, name)
    storage.delete(layout.signature_path("prod", 2))
    objects, fault = signatures.signed_objects(storage, "prod", TRUSTED)
    assert list(objects) == ["prod/b1"]
    assert isinstance(fault, MissingLink)


def test_signed_objects_are_compared(storage: Storage) -> None:
    link = append(storage, "b1")
    assert signatures.require_subject(storage, link) == b"b1"
    storage.put("prod/b1", b"b2")
    with pytest.raises(SubjectChanged, match="prod, link 1: prod/b1 of deletion b1 is not"):
        signatures.require_subject(storage, link)
    storage.delete("prod/b1")
    with pytest.raises(SubjectMissing, match="is not there"):
        signatures.require_subject(storage, link)
