"""Certificates and keys of clients that cannot work, named before or instead of librdkafka's words."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup_jobs.kafka.admin.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSPHRASE = "open-sesame"
PRESENT = datetime.now(UTC)
DAY = timedelta(days=1)


class Authority:
    """A certificate authority, and what it signs, as files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self.certificate = self._signed(self.name, self.key, PRESENT - DAY, PRESENT + DAY, is_authority=True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, begin: datetime, end: datetime, passphrase: str = "") -> dict[str, str]:
        """The properties of a client with such a certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._signed(subject, key, begin, end)
        cipher = (
            serialization.BestAvailableEncryption(passphrase.encode())
            if passphrase
            else serialization.NoEncryption()
        )
        own, secret, store = (self.folder / f"{name}.{ending}" for ending in ("pem", "key", "p12"))
        own.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, cipher)
        )
        store.write_bytes(
            pkcs12.serialize_key_and_certificates(
                name.encode(),
                key,
                certificate,
                None,
                serialization.BestAvailableEncryption(PASSPHRASE.encode()),
            )
        )
        return {
            "ssl.certificate.location": str(own),
            "ssl.key.location": str(secret),
            "ssl.ca.location": str(self.file),
            "security.protocol": "SSL",
        }

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        begin: datetime,
        end: datetime,
        *,
        is_authority: bool = False,
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        )
        return builder.sign(self.key, hashes.SHA256())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextmanager
def broker_with_mutual_tls(authority: Authority) -> Iterator[str]:
    """A server that asks for certificates, as a broker's listener does, and answers nothing."""
    own = authority.sign("broker", PRESENT - DAY, PRESENT + DAY)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(own["ssl.certificate.location"], own["ssl.key.location"])
    with socket.create_server(("localhost", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    plain, _ = server.accept()
                except OSError:
                    return
                with suppress(OSError), context.wrap_socket(plain, server_side=True) as client:
                    client.recv(1)

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"localhost:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)


def brokers(client: dict[str, str]) -> None:
    Cluster(client).brokers()


@pytest.mark.parametrize(
    ("begin", "end", "message"),
    [
        (PRESENT - 2 * DAY, PRESENT - DAY, r"client\.pem.*expired on \d{4}-"),
        (PRESENT + DAY, PRESENT + 2 * DAY, r"client\.pem.*not valid before \d{4}-"),
    ],
)
def test_a_certificate_out_of_its_time_is_named(
    authority: Authority, begin: datetime, end: datetime, message: str
) -> None:
    client = authority.sign("client", begin, end)
    with (
        broker_with_mutual_tls(authority) as address,
        pytest.raises(EnvironmentProblem, match=message),
    ):
        brokers({**client, "bootstrap.servers": address})


def test_an_expired_certificate_of_a_keystore_is_named(authority: Authority) -> None:
    authority.sign("client", PRESENT - 2 * DAY, PRESENT - DAY)
    client = {
        "ssl.keystore.location": str(authority.folder / "client.p12"),
        "ssl.keystore.password": PASSPHRASE,
        "ssl.ca.location": str(authority.file),
        "security.protocol": "SSL",
    }
    with (
        broker_with_mutual_tls(authority) as address,
        pytest.raises(EnvironmentProblem, match=r"client\.p12.*expired on"),
    ):
        brokers({**client, "bootstrap.servers": address})


def test_a_client_without_a_certificate_is_reported(authority: Authority) -> None:
    client = {"ssl.ca.location": str(authority.file), "security.protocol": "SSL"}
    with (
        broker_with_mutual_tls(authority) as address,
        pytest.raises(EnvironmentProblem, match="asks for a certificate"),
    ):
        brokers({**client, "bootstrap.servers": address})


@pytest.mark.parametrize("password", [None, "wrong"])
def test_a_key_that_cannot_be_opened_is_a_setting(authority: Authority, password: str | None) -> None:
    client = authority.sign("client", PRESENT - DAY, PRESENT + DAY, passphrase=PASSPHRASE)
    if password:
        client["ssl.key.password"] = password
    with pytest.raises(UsageProblem, match=r"ssl\.key") as caught:
        brokers({**client, "bootstrap.servers": "localhost:1"})
    assert password is None or password not in caught.value.message
