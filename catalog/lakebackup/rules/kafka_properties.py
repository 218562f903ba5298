"""Translate and check properties of Kafka clients. Those of Java's clients become properties of librdkafka.

Names and values follow Kafka's documentation of its clients, and CONFIGURATION.md of librdkafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from lakebackup.errors import UsageProblem

# Properties that only Java's clients have, and that mean nothing to librdkafka.
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
# librdkafka accepts a protocol before the host, and uses port 9092 if none is given.
_SERVER = re.compile(
    r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(?:\[[0-9a-fA-F:.%\w]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?",
    re.ASCII,
)
_LAST_PORT = 65_535
_OPTION = re.compile(r"""(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)""")
_LOGIN_PROPERTIES = {
    "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "Krb5LoginModule": {"keyTab": "sasl.kerberos.keytab", "principal": "sasl.kerberos.principal"},
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
}
_PASSWORD_MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
_OAUTH_HINT = (
    "Set sasl.oauthbearer.method=oidc, sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and "
    "sasl.oauthbearer.token.endpoint.url; or enable.sasl.oauthbearer.unsecure.jwt=true for a test."
)


def translate(properties: Mapping[str, str]) -> dict[str, str]:
    """Translate properties into those of librdkafka. Raises UsageProblem for properties that cannot work. Its
    hint says what to write instead, and no message shows a value that may be secret."""
    translated = {
        _RENAMED.get(name, name): value for name, value in properties.items() if name not in _IGNORED
    }
    if jaas_config := properties.get("sasl.jaas.config"):
        translated = {**_parse_jaas(jaas_config), **translated}
    for name, translate_store in _STORES.items():
        if name in properties:
            translate_store(properties, translated)
    if "bootstrap.servers" in translated:
        translated["bootstrap.servers"] = check_servers(translated["bootstrap.servers"])
    if "security.protocol" in translated:
        translated["security.protocol"] = translated["security.protocol"].upper()
    if "ssl.endpoint.identification.algorithm" in translated:
        value = translated["ssl.endpoint.identification.algorithm"].strip().lower()
        translated["ssl.endpoint.identification.algorithm"] = value or "none"
    return translated


def check_servers(text: str, name: str = "bootstrap.servers") -> str:
    """Return a list of brokers in the form of librdkafka, without the `kafka://` of a restore's target.

    Raises UsageProblem. Its message begins with `name`, the property or flag that has the list.
    """
    servers = [server.strip() for server in text.strip().removeprefix("kafka://").rstrip("/").split(",")]
    for server in servers:
        match = _SERVER.fullmatch(server)
        if match is None or not 0 < int(match["port"] or 1) <= _LAST_PORT:
            raise UsageProblem(
                f"{name} {text!r} is not a list of HOST:PORT.",
                hint="Write --bootstrap-server localhost:9092, several with commas: kafka1:9092,kafka2:9092",
            )
    return ",".join(servers)


def _parse_jaas(jaas_config: str) -> dict[str, str]:
    """The properties of librdkafka that a line of Java's login configuration stands for."""
    module = re.match(r"\s*[\w.$]*?(\w+)\s+(?:required|requisite|sufficient|optional)\b", jaas_config)
    property_names = _LOGIN_PROPERTIES.get(module[1]) if module else None
    if module is None or property_names is None:
        raise UsageProblem(
            f"sasl.jaas.config names {'the login module ' + module[1] if module else 'no login module'}, "
            "which librdkafka has not.",
            hint="Write sasl.mechanism and sasl.username, sasl.password.",
        )
    options = {name: _unquoted(value) for name, value in _OPTION.findall(jaas_config[module.end() :])}
    translated = {property_names[name]: value for name, value in options.items() if name in property_names}
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
    """Whether a keystore without a type is PKCS #12, by its file name. That is the default of librdkafka."""
    return not properties["ssl.keystore.location"].lower().endswith((".jks", ".keystore"))


_STORES: Mapping[str, Callable[[Mapping[str, str], dict[str, str]], None]] = {
    "ssl.truststore.location": _truststore,
    "ssl.keystore.location": _keystore,
}


def require_usable(properties: Mapping[str, str]) -> None:
    """Raise UsageProblem for properties with which no client can start.

    Call it only when a client is needed, because a password may be set only for some commands.
    """
    if not properties.get("security.protocol", "").startswith("SASL_"):
        return
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if mechanism in _PASSWORD_MECHANISMS:
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
            hint=f"It has {', '.join(sorted(_PASSWORD_MECHANISMS))}, OAUTHBEARER and GSSAPI.",
        )
