"""The trust store of Spark's JVM: the authorities that Java trusts by itself, and those of a PEM bundle.

AWS's SDK for Python reads a bundle of certificates in PEM, Java a store of its own. The store is made from
the bundle, so that one setting serves both. It extends Java's own, which the JVM needs for other servers. It
is kept in the cache under a name that says what is in it, since Java reads it when it first needs it.
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
# Variables whose options every JVM takes; those of the command line would win over them.
_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def java_options(bundle: str) -> list[str]:
    """The JVM's options to trust the authorities in `bundle` too; none where a person's name a trust store.

    Raises UsageProblem for a bundle without certificates, EnvironmentProblem where no store can be made.
    """
    if any(_PROPERTY in os.environ.get(name, "") for name in _VARIABLES):
        return []
    return [f"-D{_PROPERTY}={trust_store(Path(bundle))}", f"-D{_PROPERTY}Type=PKCS12"]


def trust_store(bundle: Path) -> Path:
    """The store for a bundle, in PKCS 12 and without a password: certificates are no secrets."""
    own = _authorities_of(java_home())
    content = bundle.read_bytes()
    digest = hashlib.sha256(content + b"\0" + own.read_bytes()).hexdigest()
    store = work_folder() / "trust" / f"{digest[:32]}.p12"
    if not store.is_file():
        with warnings.catch_warnings():
            # Java trusts authorities that are older than some of the rules for certificates.
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
    """The store that a Java trusts by itself."""
    folder = home / "lib" / "security"
    administrators = folder / "jssecacerts"
    return administrators if administrators.exists() else folder / "cacerts"


def _exported(store: Path) -> bytes:
    """The certificates of a store of any of Java's types, in PEM. Listing them needs no password."""
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
    """Write a file that other processes see whole or not at all."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)
