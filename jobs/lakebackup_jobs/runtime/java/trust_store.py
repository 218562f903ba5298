"""Makes the trust store of Spark's JVM from Java's default authorities and those of a PEM bundle.

AWS's SDK for Python reads a bundle of certificates in PEM, but Java reads a store in its own format. The
store is made from the bundle, so that one setting serves both. It extends Java's default store, which the JVM
needs for other servers. The cache keeps it, since Java reads it when it first needs it. Its name is a digest
of the bundle and the default store.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import warnings
from itertools import chain
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12
from cryptography.utils import CryptographyDeprecationWarning

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.java.jars import work_folder

_PROPERTY = "javax.net.ssl.trustStore"
# Variables whose options every JVM takes. Options on the command line would override them.
_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def java_options(bundle: str) -> list[str]:
    """Return the JVM's options to trust the authorities in `bundle`; none if the user's name a trust store.

    Raises UsageProblem for a bundle without certificates, EnvironmentProblem when no store can be made.
    """
    if any(_PROPERTY in os.environ.get(name, "") for name in _VARIABLES):
        return []
    return [f"-D{_PROPERTY}={trust_store(Path(bundle))}", f"-D{_PROPERTY}Type=PKCS12"]


def trust_store(bundle: Path) -> Path:
    """Return the store for a bundle, in PKCS 12 and without a password, since certificates are no secrets."""
    own = _authorities_of(java_home())
    content = bundle.read_bytes()
    digest = hashlib.sha256(content + b"\0" + own.read_bytes()).hexdigest()
    store = work_folder() / "trust" / f"{digest[:32]}.p12"
    if not store.is_file():
        with warnings.catch_warnings():
            # Some authorities that Java trusts are older than the rules for certificates.
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            try:
                authorities = x509.load_pem_x509_certificates(content)
            except ValueError as cause:
                raise UsageProblem(
                    f"{bundle} holds no certificates that Java can read: {cause}",
                    hint="Name a file with the authority's certificates in PEM.",
                ) from cause
            certificates = chain(authorities, x509.load_pem_x509_certificates(_exported(own)))
            entries = [
                pkcs12.PKCS12Certificate(certificate, str(number).encode())
                for number, certificate in enumerate(certificates)
            ]
            _write(store, pkcs12.serialize_java_truststore(entries, NoEncryption()))
    return store


def _authorities_of(home: Path) -> Path:
    """Return the file with the authorities that a Java trusts by default."""
    folder = home / "lib" / "security"
    administrators = folder / "jssecacerts"
    return administrators if administrators.exists() else folder / "cacerts"


def _exported(store: Path) -> bytes:
    """Return the certificates of a store of any of Java's types, in PEM. Listing them needs no password."""
    command = [str(java_home() / "bin" / "keytool"), "-list", "-rfc", "-keystore", str(store)]
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError) as cause:
        raise EnvironmentProblem(
            f"Java's own trust store {store} cannot be read with keytool: {cause}",
            hint=f"Make a trust store yourself and name it in JAVA_TOOL_OPTIONS: -D{_PROPERTY}=FILE",
        ) from cause


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically: other processes see it complete or not at all."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)
