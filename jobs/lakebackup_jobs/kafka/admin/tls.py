"""Finds out why a broker and this client cannot agree on TLS.

It connects with Python's own TLS client, because librdkafka has the same message for an unknown authority, an
expired certificate and another host's name.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12

_CONNECT_S = 5.0
_ALERT_S = 1.0


def tls_problem(config: Mapping[str, str]) -> str | None:
    """The TLS problem between the first server and librdkafka's properties; None when there is none."""
    host, _, port = config.get("bootstrap.servers", "").partition(",")[0].strip().rpartition(":")
    if not host or not port.isdigit():
        return None
    host, address = host.strip("[]"), f"{host}:{port}"
    if cause := _own_certificate_problem(config):
        return cause
    encrypts = config.get("security.protocol", "PLAINTEXT").upper() in ("SSL", "SASL_SSL")
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_S) as plain:
            context = _context(config) if encrypts else _unverified()
            with context.wrap_socket(plain, server_hostname=host) as encrypted:
                if "ssl.keystore.location" not in config:
                    encrypted.settimeout(_ALERT_S)
                    encrypted.recv(1)  # a broker may refuse the client's certificate after the handshake
    except ssl.SSLCertVerificationError as error:
        return f"the certificate of {address} is not accepted: {error.verify_message}"
    except ssl.SSLError as error:
        return _reason(error, address) if encrypts else None
    except (OSError, ValueError):
        return None
    return None if encrypts else f"{address} speaks TLS: set security.protocol to SSL or SASL_SSL"


def _own_certificate_problem(config: Mapping[str, str]) -> str | None:
    """Why the client's own certificate is not valid now.

    Returns None when it is valid, or when there is none that can be read.
    """
    store, file = config.get("ssl.keystore.location"), config.get("ssl.certificate.location")
    try:
        if store:
            password = config.get("ssl.keystore.password", "").encode()
            certificate = pkcs12.load_key_and_certificates(Path(store).read_bytes(), password)[1]
        else:
            text = Path(file).read_bytes() if file else config.get("ssl.certificate.pem", "").encode()
            certificate = x509.load_pem_x509_certificate(text) if text else None
    except (OSError, ValueError):  # librdkafka reports the cause
        return None
    if certificate is None:
        return None
    subject = f"the certificate of this client ({store or file or 'ssl.certificate.pem'})"
    present = datetime.now(UTC)
    if present > certificate.not_valid_after_utc:
        return f"{subject} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    if present < certificate.not_valid_before_utc:
        return f"{subject} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
    return None


def _reason(error: ssl.SSLError, address: str) -> str | None:
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE"):
        return f"{address} speaks no TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
    if "BAD_CERTIFICATE" in (error.reason or "") or "CERTIFICATE_UNKNOWN" in (error.reason or ""):
        return f"{address} does not accept the certificate of this client (ssl.certificate.location)"
    if "CERTIFICATE_REQUIRED" in (error.reason or "") or "HANDSHAKE_FAILURE" in (error.reason or ""):
        return f"{address} asks for a certificate: set ssl.certificate.location and ssl.key.location"
    return f"TLS with {address} fails: {(error.reason or str(error)).lower().replace('_', ' ')}"


def _context(config: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=config.get("ssl.ca.location") or None, cadata=config.get("ssl.ca.pem") or None
    )
    if config.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if config.get("enable.ssl.certificate.verification", "true") == "false":
        return _unverified()
    if (certificate := config.get("ssl.certificate.location")) and (key := config.get("ssl.key.location")):
        context.load_cert_chain(certificate, key, config.get("ssl.key.password") or "")
    return context


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
