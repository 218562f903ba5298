"""Trust stores, made with this machine's Java and read by cryptography."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, pkcs12
from cryptography.x509.oid import NameOID

from lakebackup.errors import UsageProblem
from lakebackup.storage.options import S3Options
from lakebackup_jobs.runtime.java import trust_store


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a private authority, and a cache of the test's own."""
    monkeypatch.setenv("LAKEBACKUP_CACHE", str(tmp_path / "cache"))
    key, valid_from = (
        ec.generate_private_key(ec.SECP256R1()),
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a private authority")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(valid_from)
        .not_valid_after(valid_from + datetime.timedelta(days=9_000))
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "ca.pem"
    file.write_bytes(b"# of the company\n" + certificate.public_bytes(Encoding.PEM))
    return file


# Java's own certificates cause the warnings.
@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_a_trust_store_has_the_authority_and_those_of_java(bundle: Path) -> None:
    store = trust_store.trust_store(bundle)
    certificates = pkcs12.load_pkcs12(store.read_bytes(), None).additional_certs
    assert certificates[0].certificate.subject.rfc4514_string() == "CN=a private authority"
    assert len(certificates) > 1
    assert store.stat().st_mode & 0o077 == 0
    mtime_ns = store.stat().st_mtime_ns
    assert trust_store.trust_store(bundle).stat().st_mtime_ns == mtime_ns  # it is not written again
    assert list(store.parent.iterdir()) == [store]


def test_a_trust_store_that_a_person_names_is_used(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trust_store.java_options(str(bundle))[0].startswith("-Djavax.net.ssl.trustStore=/")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Djavax.net.ssl.trustStore=/own.p12")
    assert trust_store.java_options(str(bundle)) == []


def test_authorities_come_from_options_variables_and_profiles(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/of/aws.pem")
    assert S3Options(ca_bundle=str(bundle)).authorities() == str(bundle)
    with pytest.raises(UsageProblem, match=r"/of/aws\.pem cannot be used: No such file"):
        S3Options().authorities()
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    assert S3Options().authorities() == str(bundle)
    monkeypatch.delenv("AWS_CA_BUNDLE")
    (tmp_path / "config").write_text(f"[profile own]\nca_bundle = {bundle}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "own")
    assert S3Options().authorities() == str(bundle)
    bundle.write_text("no certificate")
    with pytest.raises(UsageProblem, match="it holds no certificates in PEM"):
        S3Options().authorities()
