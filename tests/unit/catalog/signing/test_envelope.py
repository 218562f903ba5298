"""Envelopes: what was signed is read back, and any other byte is a fault."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.signing.envelope import pae, read, seal, verify
from lakebackup.signing.faults import (
    Malformed,
    NotSigned,
    PayloadChanged,
    RetiredKey,
    UnknownKey,
    Untrusted,
    WrongSignature,
    WrongType,
)
from lakebackup.signing.keys import SigningKey, TrustedKeys

KEY, OTHER_KEY = SigningKey.generate(), SigningKey.generate()
TRUSTED = TrustedKeys.of([KEY.public])
TYPE = "application/vnd.in-toto+json"


def test_the_encoding_is_that_of_the_specification() -> None:
    """The example of github.com/secure-systems-lab/dsse, protocol.md."""
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


@given(payload=st.binary(max_size=300), payload_type=st.text(st.characters(codec="utf-8"), max_size=50))
def test_what_was_signed_is_read_back(payload: bytes, payload_type: str) -> None:
    envelope = seal(payload_type, payload, KEY)
    assert read(envelope.to_bytes()) == envelope
    assert verify(read(envelope.to_bytes()), payload_type, TRUSTED) == KEY.public


@given(payload=st.binary(max_size=300))
def test_a_file_without_a_key_is_intact_and_not_signed(payload: bytes) -> None:
    envelope = read(seal(TYPE, payload, None).to_bytes())
    assert envelope.payload == payload
    with pytest.raises(NotSigned, match="integrity only"):
        verify(envelope, TYPE, TRUSTED)


@given(data=st.data(), payload=st.binary(min_size=1, max_size=60))
def test_every_flipped_bit_is_found(data: st.DataObject, payload: bytes) -> None:
    file = bytearray(seal(TYPE, payload, KEY).to_bytes())
    position = data.draw(st.integers(0, 8 * len(file) - 1))
    file[position // 8] ^= 1 << position % 8
    with pytest.raises(Untrusted):
        verify(read(bytes(file)), TYPE, TRUSTED)


@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_are_an_unexpected_failure(content: bytes) -> None:
    with pytest.raises(Malformed):
        read(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
)


@given(
    fields=st.fixed_dictionaries(
        {"payloadType": JSON, "payload": JSON, "payloadSha256": JSON, "signatures": JSON}
    )
)
def test_no_json_is_an_unexpected_failure(fields: dict[str, Any]) -> None:
    with pytest.raises(Untrusted):
        verify(read(json.dumps(fields).encode()), TYPE, TRUSTED)


def changed(change: Callable[[dict[str, Any]], None]) -> bytes:
    fields = json.loads(seal(TYPE, b"payload", KEY).to_bytes())
    change(fields)
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"payload": NaN}', "not JSON"),
        (b"[" * 100_000, "nested too deeply|not JSON"),
        (b"\xff{}", "not JSON"),
        (changed(lambda fields: fields.pop("signatures")), "lacks signatures"),
        (changed(lambda fields: fields.update(more=1)), "unknown field 'more'"),
        (changed(lambda fields: fields.update(payload=7)), "payload is not base64"),
        (changed(lambda fields: fields.update(payload=fields["payload"] + "\n")), "payload is not base64"),
        # The last letter has bits that belong to no byte.
        (changed(lambda fields: fields.update(payload="cGF5bG9hZB==")), "payload is not base64"),
        (changed(lambda fields: fields.update(payloadType=["a"])), "payloadType"),
        (changed(lambda fields: fields.update(signatures={})), "signatures is not a list"),
        (changed(lambda fields: fields.update(signatures=fields["signatures"] * 17)), "up to 16"),
        (changed(lambda fields: fields["signatures"].append("a")), "A signature is not a JSON object"),
        (changed(lambda fields: fields["signatures"][0].update(keyid=1)), "keyid"),
        (changed(lambda fields: fields["signatures"][0].update(cert="a")), "unknown field 'cert'"),
    ],
)
def test_a_file_of_another_form_is_named(content: bytes, text: str) -> None:
    with pytest.raises(Malformed, match=text):
        read(content)


@pytest.mark.parametrize("key", ["payload", "payloadType", "signatures", "payloadSha256"])
def test_a_field_that_is_there_twice_is_named(key: str) -> None:
    """Programs differ in which of the two they take."""
    file = seal(TYPE, b"payload", KEY).to_bytes()
    twice = file.replace(b"{", f'{{"{key}": "x",'.encode(), 1)
    with pytest.raises(Malformed, match=f"'{key}' twice"):
        read(twice)


def test_each_fault_has_its_name() -> None:
    envelope = seal(TYPE, b"payload", KEY)
    with pytest.raises(WrongType, match="text/plain"):
        verify(seal("text/plain", b"payload", KEY), TYPE, TRUSTED)
    with pytest.raises(PayloadChanged):
        verify(read(changed(lambda fields: fields.update(payload="AAAA"))), TYPE, TRUSTED)
    with pytest.raises(UnknownKey, match=KEY.key_id[:16]):
        verify(envelope, TYPE, TrustedKeys.of([OTHER_KEY.public]))
    with pytest.raises(UnknownKey):
        verify(envelope, TYPE, TrustedKeys.of([]))
    with pytest.raises(RetiredKey, match=KEY.key_id[:16]):
        verify(envelope, TYPE, TrustedKeys.of([OTHER_KEY.public], [KEY.public]))
    with pytest.raises(RetiredKey):  # also if it is named as a trusted one too
        verify(envelope, TYPE, TrustedKeys.of([KEY.public], [KEY.public]))
    with pytest.raises(WrongSignature):
        verify(read(changed(_forge_payload)), TYPE, TRUSTED)


def _forge_payload(fields: dict[str, Any]) -> None:
    """Replace the payload and its SHA-256, which takes no key."""
    payload = b"another payload"
    digest = hashlib.sha256(payload).hexdigest()
    fields.update(payload=base64.b64encode(payload).decode(), payloadSha256=digest)


def test_a_second_signature_does_no_harm_unless_it_is_wrong() -> None:
    own, foreign = seal(TYPE, b"payload", KEY), seal(TYPE, b"payload", OTHER_KEY)
    fields = json.loads(own.to_bytes())
    fields["signatures"] = [*json.loads(foreign.to_bytes())["signatures"], *fields["signatures"]]
    both = read(json.dumps(fields).encode())
    assert verify(both, TYPE, TRUSTED) == KEY.public
    fields["signatures"][0]["keyid"] = KEY.key_id
    with pytest.raises(WrongSignature):
        verify(read(json.dumps(fields).encode()), TYPE, TRUSTED)


def test_another_program_verifies_the_signature() -> None:
    """With nothing of ours: the signature covers the bytes that the specification names."""
    key = Ed25519PrivateKey.generate()
    envelope = seal(TYPE, b"payload", SigningKey._of(key))
    key.public_key().verify(envelope.signatures[0].value, b"DSSEv1 28 " + TYPE.encode() + b" 7 payload")
