"""Properties of Kafka's clients as librdkafka has them; those of Java's clients are translated.

Names and values as in Kafka's documentation of its clients and in librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakebackup.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Of Java's clients alone, and without a meaning here.
_IGNORED = frozenset(
    {
        "key.deserializer", "value.deserializer", "key.serializer", "value.serializer", "max.poll.records",
        "ssl.truststore.password", "ssl.truststore.type", "ssl.keystore.type", "ssl.protocol",
        "ssl.enabled.protocols", "sasl.login.class", "sasl.login.callback.handler.class",
        "sasl.client.callback.handler.class", "sasl.jaas.config",
    }
)  # fmt: skip
_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
}
# librdkafka takes a protocol before the host, and the port 9092 without one.
_SERVER = re.compile(
    r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(?:\[[0-9a-fA-F:.%\w]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?",
    re.ASCII,
)
_LAST_PORT = 65_535
_OPTION = re.compile(r"""(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)""")
_OF_LOGIN = {
    "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "Krb5LoginModule": {"keyTab": "sasl.kerberos.keytab", "principal": "sasl.kerberos.principal"},
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
}
_WITH_PASSWORD = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
_OAUTH_HINT = (
    "Set sasl.oauthbearer.method=oidc, sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and "
    "sasl.oauthbearer.token.endpoint.url; or enable.sasl.oauthbearer.unsecure.jwt=true for a test."
)


def translate(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties as librdkafka has them. Raises UsageProblem for what cannot work, which names what to
    write instead; it never shows a value that may be secret."""
    translated = {
        _RENAMED.get(name, name): value for name, value in properties.items() if name not in _IGNORED
    }
    if text := properties.get("sasl.jaas.config"):
        translated = {**_of_jaas(text), **translated}
    for name, change in _STORES.items():
        if name in properties:
            change(properties, translated)
    if "bootstrap.servers" in translated:
        translated["bootstrap.servers"] = check_servers(translated["bootstrap.servers"])
    if "security.protocol" in translated:
        translated["security.protocol"] = translated["security.protocol"].upper()
    if "ssl.endpoint.identification.algorithm" in translated:
        value = translated["ssl.endpoint.identification.algorithm"].strip().lower()
        translated["ssl.endpoint.identification.algorithm"] = value or "none"
    return translated


def check_servers(text: str, name: str = "bootstrap.servers") -> str:
    """A list of brokers as librdkafka has it; `kafka://`, as restores name their target, is left out.

    Raises UsageProblem, which begins with `name`, the property or the flag.
    """
    servers = [server.strip() for server in text.strip().removeprefix("kafka://").rstrip("/").split(",")]
    for server in servers:
        named = _SERVER.fullmatch(server)
        if named is None or not 0 < int(named["port"] or 1) <= _LAST_PORT:
            raise UsageProblem(
                f"{name} {text!r} is not a list of HOST:PORT.",
                hint="Write --bootstrap-server localhost:9092, several with commas: kafka1:9092,kafka2:9092",
            )
    return ",".join(servers)


def _of_jaas(text: str) -> dict[str, str]:
    """What a line of Java's login configuration says."""
    module = re.match(r"\s*[\w.$]*?(\w+)\s+(?:required|requisite|sufficient|optional)\b", text)
    names = _OF_LOGIN.get(module[1]) if module else None
    if module is None or names is None:
        raise UsageProblem(
            f"sasl.jaas.config names {'the login module ' + module[1] if module else 'no login module'}, "
            "which librdkafka has not.",
            hint="Write sasl.mechanism and sasl.username, sasl.password.",
        )
    options = {name: _unquoted(value) for name, value in _OPTION.findall(text[module.end() :])}
    translated = {names[name]: value for name, value in options.items() if name in names}
    if module[1] == "OAuthBearerLoginModule" and translated:
        translated["sasl.oauthbearer.method"] = "oidc"
    return translated


def _unquoted(value: str) -> str:
    if value[:1] in ("'", '"'):
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value


def _truststore(properties: Mapping[str, str], translated: dict[str, str]) -> None:
    kind = properties.get("ssl.truststore.type", "JKS").upper()
    file = translated.pop("ssl.truststore.location")
    if kind != "PEM":
        raise UsageProblem(
            f"ssl.truststore.location: librdkafka reads no truststore of the type {kind}.",
            hint="Write its certificates to a PEM file (keytool -exportcert -rfc -keystore FILE -alias NAME) "
            "and name that as ssl.ca.location.",
        )
    translated.setdefault("ssl.ca.location", file)


def _keystore(properties: Mapping[str, str], translated: dict[str, str]) -> None:
    kind = properties.get("ssl.keystore.type", "PKCS12" if _is_pkcs12(properties) else "JKS").upper()
    if kind == "PKCS12":
        return
    file = translated.pop("ssl.keystore.location")
    translated.pop("ssl.keystore.password", None)
    if kind != "PEM":
        raise UsageProblem(
            f"ssl.keystore.location: librdkafka reads no keystore of the type {kind}.",
            hint="Make one of PKCS #12 (keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 "
            "-deststoretype PKCS12) and set ssl.keystore.type=PKCS12; or name PEM files as "
            "ssl.certificate.location and ssl.key.location.",
        )
    translated.setdefault("ssl.certificate.location", file)
    translated.setdefault("ssl.key.location", file)


def _is_pkcs12(properties: Mapping[str, str]) -> bool:
    """Whether a keystore without a type is one of PKCS #12, which librdkafka alone takes for granted."""
    return not properties["ssl.keystore.location"].lower().endswith((".jks", ".keystore"))


_STORES: Mapping[str, Callable[[Mapping[str, str], dict[str, str]], None]] = {
    "ssl.truststore.location": _truststore,
    "ssl.keystore.location": _keystore,
}


def require_usable(properties: Mapping[str, str]) -> None:
    """UsageProblem for settings with which no client can start. Asked when one is needed: a password may be
    set for some commands alone."""
    if not properties.get("security.protocol", "").startswith("SASL_"):
        return
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if mechanism in _WITH_PASSWORD:
        for name in ("sasl.username", "sasl.password"):
            if not properties.get(name):
                raise UsageProblem(
                    f"sasl.mechanism {mechanism} needs {name}, which is not set.",
                    hint=f"Set LAKEBACKUP_KAFKA__{name.upper().replace('.', '_')}, or write it into [kafka] "
                    "of lakebackup.toml.",
                )
    elif mechanism == "OAUTHBEARER":
        is_test = properties.get("enable.sasl.oauthbearer.unsecure.jwt") == "true"
        if properties.get("sasl.oauthbearer.method") != "oidc" and not is_test:
            raise UsageProblem("sasl.mechanism OAUTHBEARER has no source of tokens.", hint=_OAUTH_HINT)
    elif mechanism != "GSSAPI":
        raise UsageProblem(
            f"librdkafka has no sasl.mechanism {mechanism}.",
            hint=f"It has {', '.join(sorted(_WITH_PASSWORD))}, OAUTHBEARER and GSSAPI.",
        )
