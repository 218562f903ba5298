"""A corpus of tampered statements: each is found, and named by the first fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.statements import (
    PAGE,
    Fields,
    evidence_of,
    fields_of,
    payload_of,
    statement_file,
    with_fields,
    with_payload,
    with_statement,
)

from lakebackup.signing.envelope import seal
from lakebackup.signing.faults import (
    ChainFault,
    Malformed,
    NotSigned,
    PayloadChanged,
    RetiredKey,
    TooOld,
    UnknownKey,
    Untrusted,
    WrongPage,
    WrongProof,
    WrongSignature,
    WrongSubject,
    WrongType,
)
from lakebackup.signing.keys import SigningKey, TrustedKeys
from lakebackup.signing.statement import PAYLOAD_TYPE, attest, check

KEY, OTHER_KEY = SigningKey.generate(), SigningKey.generate()
TRUSTED = TrustedKeys.of([KEY.public])
FILE = statement_file(KEY)


def fault_of(
    file: bytes, keys: TrustedKeys = TRUSTED, page: bytes | None = PAGE, earliest: datetime | None = None
) -> Untrusted | None:
    """The first fault of a file; None if there is none."""
    try:
        _, fault = check(file, keys, page, earliest=earliest)
    except Untrusted as raised:
        return raised
    return fault


def flipped(file: bytes, field: str) -> bytes:
    """The file with another letter in the middle of a base64 text."""
    fields = fields_of(file)
    text = fields["payload"] if field == "payload" else fields["signatures"][0]["sig"]
    middle = len(text) // 2
    changed = text[:middle] + ("A" if text[middle] != "A" else "B") + text[middle + 1 :]
    return file.replace(text.encode(), changed.encode())


def signed_again(change: Callable[[Fields], None]) -> bytes:
    """A changed statement, signed by the trusted key: a fault of the program or of whoever has the key."""
    statement = json.loads(payload_of(FILE))
    change(statement)
    return seal(PAYLOAD_TYPE, json.dumps(statement).encode(), KEY).to_bytes()


def set_outcome(statement: Fields) -> None:
    statement["predicate"]["outcome"] = "failed"


def set_subject_digest(statement: Fields) -> None:
    statement["subject"][1]["digest"]["sha256"] = "0" * 64


TAMPERED: dict[str, tuple[bytes, type[Untrusted]]] = {
    "bit in the payload": (flipped(FILE, "payload"), PayloadChanged),
    "bit in the signature": (flipped(FILE, "sig"), WrongSignature),
    "other payload with its own SHA-256": (with_statement(FILE, set_outcome), WrongSignature),
    "other payload with the old SHA-256": (
        with_statement(FILE, set_outcome, own_digest=False),
        PayloadChanged,
    ),
    "other SHA-256": (with_fields(FILE, payloadSha256="0" * 64), PayloadChanged),
    "signature of another key": (statement_file(OTHER_KEY), UnknownKey),
    "signature of another key under the id of the trusted one": (
        statement_file(OTHER_KEY).replace(OTHER_KEY.key_id.encode(), KEY.key_id.encode()),
        WrongSignature,
    ),
    "trusted signature under the id of another key": (
        FILE.replace(KEY.key_id.encode(), OTHER_KEY.key_id.encode()),
        UnknownKey,
    ),
    "signature of another statement": (
        with_fields(FILE, signatures=fields_of(statement_file(KEY, host="else"))["signatures"]),
        WrongSignature,
    ),
    "other payloadType": (with_fields(FILE, payloadType="text/plain"), WrongType),
    "payloadType in other letters": (with_fields(FILE, payloadType=PAYLOAD_TYPE.upper()), WrongType),
    "signed for another payloadType": (
        with_fields(seal("text/plain", payload_of(FILE), KEY).to_bytes(), payloadType=PAYLOAD_TYPE),
        WrongSignature,
    ),
    "signature stripped": (with_fields(FILE, signatures=[]), NotSigned),
    "never signed": (statement_file(None), NotSigned),
    "empty signature": (
        with_fields(FILE, signatures=[{"keyid": KEY.key_id, "sig": ""}]),
        WrongSignature,
    ),
    "key twice in the envelope": (FILE.replace(b"{", b'{"payload": "",', 1), Malformed),
    "key twice in the payload": (
        seal(PAYLOAD_TYPE, payload_of(FILE).replace(b"{", b'{"subject": [],', 1), KEY).to_bytes(),
        Malformed,
    ),
    "key twice deep in the payload": (
        seal(PAYLOAD_TYPE, payload_of(FILE).replace(b'"host"', b'"host":"a","host"', 1), KEY).to_bytes(),
        Malformed,
    ),
    "payload cut": (with_payload(FILE, payload_of(FILE)[:-9], own_digest=True), WrongSignature),
    "file cut": (FILE[:-9], Malformed),
    "two files in one": (FILE + FILE, Malformed),
    "digest of a subject": (signed_again(set_subject_digest), WrongSubject),
    "subjects in another order": (
        signed_again(lambda statement: statement["subject"].reverse()),
        WrongSubject,
    ),
    "subject left out": (signed_again(lambda statement: statement["subject"].pop()), WrongSubject),
    "item left out": (signed_again(lambda s: s["predicate"]["items"].pop()), WrongSubject),
    "other type of statement": (
        signed_again(lambda statement: statement.update(_type="https://in-toto.io/Statement/v0.1")),
        WrongType,
    ),
    "drill as a verify": (
        signed_again(lambda statement: statement.update(predicateType="urn:lakebackup:verify:v1")),
        WrongType,
    ),
    "other key in the predicate": (
        attest(evidence_of(OTHER_KEY), PAGE, "drill.json.html", KEY).to_bytes(),
        WrongType,
    ),
    "end before the start": (
        statement_file(KEY, finished="2026-11-21T13:00:00+00:00"),
        Malformed,
    ),
    "field of the predicate missing": (signed_again(lambda s: s["predicate"].pop("host")), Malformed),
    "payload that is no statement": (seal(PAYLOAD_TYPE, b"[1]", KEY).to_bytes(), Malformed),
}


def test_a_statement_is_what_was_attested() -> None:
    attestation, fault = check(FILE, TRUSTED, PAGE)
    assert fault is None
    assert attestation.signer == KEY.public
    assert attestation.page == "matches"
    assert attestation.evidence.model_copy(update={"page": None}) == evidence_of(KEY)
    statement = json.loads(payload_of(FILE))
    assert [subject["name"] for subject in statement["subject"]] == ["prod/b1", "test/b1"]


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_found_and_named(name: str) -> None:
    file, kind = TAMPERED[name]
    fault = fault_of(file)
    assert type(fault) is kind, fault
    assert fault.message.endswith(".")
    assert fault.hint
    assert fault.exit_code == 7


def test_the_corpus_names_every_fault_that_one_file_can_have() -> None:
    faults = {kind for _, kind in TAMPERED.values()}
    # The others depend on what the reader trusts and requires, or on the page beside the file.
    assert faults == set(Untrusted.__subclasses__()) - {
        RetiredKey,
        TooOld,
        WrongPage,
        WrongProof,
        ChainFault,
    }


def test_a_retired_key_vouches_for_nothing() -> None:
    assert isinstance(fault_of(FILE, TrustedKeys.of([OTHER_KEY.public], [KEY.public])), RetiredKey)


def test_a_stripped_signature_is_told_from_one_that_never_was() -> None:
    stripped, unsigned = (fault_of(TAMPERED[name][0]) for name in ("signature stripped", "never signed"))
    assert stripped is not None
    assert unsigned is not None
    assert f"the key {KEY.key_id[:16]} signed it" in stripped.message
    assert "integrity only" in unsigned.message


def test_an_earlier_statement_under_a_new_name_is_too_old() -> None:
    earlier = statement_file(KEY, started="2026-10-01T00:00:00+00:00", finished="2026-10-01T00:01:00+00:00")
    november = datetime(2026, 11, 1, tzinfo=UTC)
    assert isinstance(fault_of(earlier, earliest=november), TooOld)
    assert fault_of(FILE, earliest=november) is None


def test_the_page_of_another_statement_is_found() -> None:
    assert isinstance(fault_of(FILE, page=PAGE.replace(b"Evidence", b"evidence")), WrongPage)
    assert isinstance(fault_of(FILE, page=b""), WrongPage)
    attestation, fault = check(FILE, TRUSTED, None)
    assert (attestation.page, fault) == ("absent", None)


def test_a_run_that_chose_nothing_attests_its_request() -> None:
    file = statement_file(KEY, items=[], outcome="failed", exit_code=6, error="No disk.")
    assert fault_of(file) is None
    (subject,) = json.loads(payload_of(file))["subject"]
    assert subject["name"] == "request"


def test_fields_of_a_later_version_are_ignored() -> None:
    def add(statement: Fields) -> None:
        statement["predicate"]["later"] = {"a": 1}

    assert fault_of(signed_again(add)) is None


@given(
    text=st.text(st.characters(codec="utf-8"), max_size=40),
    number=st.integers(0, 2**60),
    versions=st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=9), st.integers(0, 2**40)),
)
def test_any_values_come_back(text: str, number: int, versions: dict[str, int]) -> None:
    evidence = evidence_of(KEY, host=text, error=text, counts={text: number}, versions=versions)
    file = attest(evidence, PAGE, text, KEY).to_bytes()
    attestation, fault = check(file, TRUSTED, PAGE)
    assert fault is None
    assert attestation.evidence.model_copy(update={"page": None}) == evidence


@given(data=st.data())
def test_every_flipped_bit_of_a_statement_is_found(data: st.DataObject) -> None:
    file = bytearray(FILE)
    position = data.draw(st.integers(0, 8 * len(file) - 1))
    file[position // 8] ^= 1 << position % 8
    assert fault_of(bytes(file)) is not None
