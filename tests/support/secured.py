"""A broker with access rights, and listeners for passwords (SASL_SSL) and for certificates (mutual TLS).

The user of its plain listener may do everything."""

from __future__ import annotations

import subprocess
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.runtime.child import free_port
from lakebackup_jobs.runtime.java.home import java_home

MECHANISM = "SCRAM-SHA-512"
CERTIFIED = "certified"
STORE_PASSWORD = "changeit"  # the password of the broker's key, which no client sees


class SecuredBroker(Broker):
    """`secured` is the address of the SASL_SSL listener, `mutual` that of mutual TLS, `certificate` the file
    that clients must trust."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.secured = f"127.0.0.1:{free_port()}"
        self.certificate = self.folder / "ca.pem"
        self.mutual = f"127.0.0.1:{free_port()}"
        store, trusted = self.folder / "broker.p12", self.folder / "trusted.p12"
        plain = f"PLAINTEXT://{self.bootstrap}"
        self._extra |= {
            "listeners": f"{plain},CONTROLLER://127.0.0.1:{self._controller},"
            f"SASL_SSL://{self.secured},MUTUAL://{self.mutual}",
            "advertised.listeners": f"{plain},SASL_SSL://{self.secured},MUTUAL://{self.mutual}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,MUTUAL:SSL"
            ),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.truststore.type": "PKCS12",
            "listener.name.mutual.ssl.truststore.location": str(trusted),
            "listener.name.mutual.ssl.truststore.password": STORE_PASSWORD,
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": STORE_PASSWORD,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        key = ["-alias", "broker", "-keystore", str(store), "-storetype", "PKCS12"]
        _keytool(
            "-genkeypair", *key, "-keyalg", "RSA", "-dname", "CN=127.0.0.1",
            "-ext", "san=ip:127.0.0.1", "-validity", "2",
        )  # fmt: skip
        self.certificate.write_text(_keytool("-exportcert", "-rfc", *key))
        self._client_store, client_certificate = self.folder / "client.p12", self.folder / "client.pem"
        client_key = ["-alias", "client", "-keystore", str(self._client_store), "-storetype", "PKCS12"]
        _keytool("-genkeypair", *client_key, "-keyalg", "RSA", "-dname", f"CN={CERTIFIED}", "-validity", "2")
        client_certificate.write_text(_keytool("-exportcert", "-rfc", *client_key))
        trust = ["-alias", "client", "-keystore", str(trusted), "-storetype", "PKCS12"]
        _keytool("-importcert", "-noprompt", *trust, "-file", str(client_certificate))

    def certified(self) -> dict[str, str]:
        """The properties of clients that authenticate with a certificate, by their names in Java."""
        return {
            "bootstrap.servers": self.mutual,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self._client_store),
            "ssl.keystore.password": STORE_PASSWORD,
        }

    def add_user(self, name: str, password: str) -> dict[str, str]:
        """Add a user; returns the properties of its clients."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsert = UserScramCredentialUpsertion(name, info, password.encode())
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.alter_user_scram_credentials([upsert]).values():
            future.result(30)
        return {
            "bootstrap.servers": self.secured,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": name,
            "sasl.password": password,
            "ssl.ca.location": str(self.certificate),
        }

    def allow(
        self,
        user: str,
        operation: AclOperation,
        name: str,
        kind: ResourceType = ResourceType.TOPIC,
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    ) -> None:
        """Allow a user an operation on a topic or a group; `*` stands for all."""
        acl = AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_acls([acl]).values():
            future.result(30)

    def revoke(self, user: str, operation: AclOperation, name: str, kind: ResourceType) -> None:
        """Revoke a right that `allow` granted."""
        acl = AclBindingFilter(
            kind, name, ResourcePatternType.ANY, f"User:{user}", "*", operation, AclPermissionType.ALLOW
        )
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_acls([acl]).values():
            future.result(30)


def _keytool(*arguments: str) -> str:
    command = [str(java_home() / "bin" / "keytool"), *arguments, "-storepass", STORE_PASSWORD]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
