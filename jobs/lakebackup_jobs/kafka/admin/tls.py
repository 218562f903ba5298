"""Why a broker and this client cannot agree on TLS.

It is asked with Python's own client: librdkafka's words are the same for an unknown authority, an expired
certificate and another host's name.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONNECT_S = 5.0


def tls_problem(config: Mapping[str, str]) -> str | None:
    """What is wrong between the first server and librdkafka's properties; None: nothing that TLS is to blame
    for."""
    host, _, port = config.get("bootstrap.servers", "").partition(",")[0].strip().rpartition(":")
    if not host or not port.isdigit():
        return None
    host, address = host.strip("[]"), f"{host}:{port}"
    encrypts = config.get("security.protocol", "PLAINTEXT").upper() in ("SSL", "SASL_SSL")
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_S) as plain:
            context = _context(config) if encrypts else _unverified()
            with context.wrap_socket(plain, server_hostname=host):
                pass
    except ssl.SSLCertVerificationError as error:
        return f"the certificate of {address} is not accepted: {error.verify_message}"
    except ssl.SSLError as error:
        return _reason(error, address) if encrypts else None
    except (OSError, ValueError):
        return None
    return None if encrypts else f"{address} speaks TLS: set security.protocol to SSL or SASL_SSL"


def _reason(error: ssl.SSLError, address: str) -> str | None:
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE"):
        return f"{address} speaks no TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
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
