"""Java's client properties become librdkafka's. Unusable ones are refused before a broker is contacted."""

from __future__ import annotations

import pytest

from lakebackup.errors import UsageProblem
from lakebackup.rules.kafka_properties import require_usable, translate

SASL = {"security.protocol": "SASL_SSL"}
PLAIN = {**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": 'p"w'}


@pytest.mark.parametrize(
    ("java", "translated"),
    [
        ({}, {}),
        (
            {"bootstrap.servers": "a:1", "fetch.max.bytes": "5"},
            {"bootstrap.servers": "a:1", "fetch.max.bytes": "5"},
        ),
        (
            {
                **SASL,
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
                'username="ann" password="p\\"w";',
            },
            PLAIN,
        ),
        (
            {
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
                "username='ann'\npassword=secret;",
            },
            {**SASL, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann", "sasl.password": "secret"},
        ),
        (
            {
                **SASL,
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.login.callback.handler.class": "org.apache.kafka.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": "https://id/token",
                "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule "
                "required clientId='a' clientSecret='b' scope='c';",
            },
            {
                **SASL,
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://id/token",
                "sasl.oauthbearer.client.id": "a",
                "sasl.oauthbearer.client.secret": "b",
                "sasl.oauthbearer.scope": "c",
            },
        ),
        (
            {
                **SASL,
                "sasl.mechanism": "GSSAPI",
                "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
                'keyTab="/etc/k.keytab" principal="a@B";',
            },
            {
                **SASL,
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.keytab": "/etc/k.keytab",
                "sasl.kerberos.principal": "a@B",
            },
        ),
        (
            {
                "ssl.truststore.location": "/ca.pem",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.password": "x",
            },
            {"ssl.ca.location": "/ca.pem"},
        ),
        (
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.type": "PKCS12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
        ),
        (
            {"ssl.keystore.location": "/k.pem", "ssl.keystore.type": "PEM", "ssl.key.password": "x"},
            {"ssl.certificate.location": "/k.pem", "ssl.key.location": "/k.pem", "ssl.key.password": "x"},
        ),
        (
            {
                "ssl.keystore.key": "KEY",
                "ssl.keystore.certificate.chain": "CHAIN",
                "ssl.truststore.certificates": "CA",
            },
            {"ssl.key.pem": "KEY", "ssl.certificate.pem": "CHAIN", "ssl.ca.pem": "CA"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        (
            {"ssl.endpoint.identification.algorithm": "HTTPS"},
            {"ssl.endpoint.identification.algorithm": "https"},
        ),
        ({"key.deserializer": "x", "max.poll.records": "1"}, {}),
    ],
)
def test_java_properties_are_translated_to_librdkafka(
    java: dict[str, str], translated: dict[str, str]
) -> None:
    assert translate(java) == translated
    assert translate(translated) == translated


@pytest.mark.parametrize(
    ("properties", "complaint", "advice"),
    [
        ({"ssl.truststore.location": "/t.jks"}, "type JKS", "ssl.ca.location"),
        ({"ssl.truststore.location": "/t", "ssl.truststore.type": "PKCS12"}, "type PKCS12", "keytool"),
        ({"ssl.keystore.location": "/k.jks"}, "type JKS", "ssl.keystore.type=PKCS12"),
        (
            {"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"},
            "IAMLoginModule",
            "sasl",
        ),
        ({"sasl.jaas.config": "nonsense"}, "no login module", "sasl.username"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "a"}, "needs sasl.password", "SASL_PASSWORD"),
        ({**SASL, "sasl.mechanism": "SCRAM-SHA-256"}, "needs sasl.username", "SASL_USERNAME"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "no source of tokens", "token.endpoint.url"),
        ({**SASL, "sasl.mechanism": "AWS_MSK_IAM"}, "no sasl.mechanism AWS_MSK_IAM", "SCRAM"),
    ],
)
def test_unusable_properties_are_refused_with_advice(
    properties: dict[str, str], complaint: str, advice: str
) -> None:
    with pytest.raises(UsageProblem, match=complaint) as error:
        require_usable(translate(properties))
    assert advice in error.value.hint


def test_a_secret_is_not_shown() -> None:
    text = 'x.IAMLoginModule required password="hunter2";'
    with pytest.raises(UsageProblem) as error:
        translate({"sasl.jaas.config": text})
    assert "hunter2" not in str(error.value)
