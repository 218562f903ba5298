"""A schema id's meaning depends on the registry, its history, the context, and the topic that uses the id."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from lakebackup.rules.schema_ids import IdUse, Part, SchemaIds, mismatches, schema_ids, split_subject


def record(name: str, /, **fields: str) -> str:
    return json.dumps(
        {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    )


CUSTOMER, PAYMENT = record("Customer", name="string", age="int"), record("Payment", iban="string")


def row(
    subject: str | None, schema_id: int, text: str, version: int | None = 1, **changes: Any
) -> dict[str, Any]:
    key_columns = {"scope": "_schemas", "epoch": "e1", "subject": subject, "version": version}
    schema_columns = {"schema_type": "AVRO", "schema_text": text, "schema_references": None}
    return {**key_columns, "schema_id": schema_id, **schema_columns, **changes}


def name_of(ids: SchemaIds, number: int, topic: str, part: Part = "value") -> str:
    meaning = ids.meaning(number, topic, part)
    return meaning if isinstance(meaning, str) else meaning.name


def references(*subjects: tuple[str, int]) -> str:
    return json.dumps([{"name": s, "subject": s, "version": v} for s, v in subjects])


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("orders-value", (".", "orders-value")),
        (":.:orders-value", (".", "orders-value")),
        (":.eu:orders-value", (".eu", "orders-value")),
        (":.eu:a:b", (".eu", "a:b")),
        (":.eu:", (".eu", "")),
        (":.eu", (".eu", "")),
        (":odd:name", (".", ":odd:name")),
        ("", (".", "")),
    ],
)
def test_qualified_subjects_name_their_context(subject: str, expected: tuple[str, str]) -> None:
    assert split_subject(subject) == expected


def test_an_id_means_what_the_context_of_its_topic_says() -> None:
    ids = schema_ids([row("customers-value", 1, CUSTOMER), row(":.partner:payments-value", 1, PAYMENT)])
    assert name_of(ids, 1, "customers") == "Customer"
    assert name_of(ids, 1, "payments") == "Payment"
    unknown = name_of(ids, 1, "partner-payments")
    assert "Customer (subject customers-value, version 1, in the default context of _schemas)" in unknown
    assert "Payment (subject payments-value, version 1, in the context .partner of _schemas)" in unknown


def test_an_id_of_another_context_is_not_used_for_a_topic_of_a_known_one() -> None:
    ids = schema_ids([row("customers-value", 1, CUSTOMER), row(":.partner:other-value", 5, PAYMENT)])
    unknown = name_of(ids, 5, "customers")
    assert "schema 5 is not known in the default context of _schemas" in unknown
    assert "elsewhere it means Payment" in unknown
    assert name_of(ids, 5, "unnamed") == "Payment"


def test_ids_that_no_subject_names_follow_the_context_of_the_topic() -> None:
    # With subjects named after records, only the first of a topic's schemas has a subject of the topic.
    rows = [row(":.eu:a-value", 1, CUSTOMER), row(":.eu:Payment", 2, PAYMENT), row("Customer", 2, CUSTOMER)]
    assert name_of(schema_ids(rows), 2, "a") == "Payment"


def test_subjects_of_topic_and_record_name_the_topic() -> None:
    rows = [row(":.eu:a-Payment", 1, PAYMENT), row("a-b-value", 1, CUSTOMER)]
    assert name_of(schema_ids(rows), 1, "a") == "Payment"
    assert name_of(schema_ids(rows), 1, "a-b") == "Customer"


def test_keys_follow_their_own_subjects_and_else_those_of_values() -> None:
    rows = [row("a-key", 1, CUSTOMER), row(":.eu:a-value", 1, PAYMENT), row(":.eu:b-value", 2, PAYMENT)]
    ids = schema_ids([*rows, row("c-value", 2, CUSTOMER)])
    assert name_of(ids, 1, "a", "key") == "Customer"
    assert name_of(ids, 1, "a", "value") == "Payment"
    assert name_of(ids, 2, "b", "key") == "Payment"


def test_a_topic_of_two_contexts_with_one_id_is_not_guessed() -> None:
    rows = [row("a-value", 1, CUSTOMER), row(":.eu:a-value", 1, PAYMENT), row(":.eu:a-value", 2, PAYMENT, 2)]
    ids = schema_ids(rows)
    assert "which of these different schemas topic a uses is not known" in name_of(ids, 1, "a")
    assert name_of(ids, 2, "a") == "Payment"


@pytest.mark.parametrize("changes", [{"scope": "_schemas2"}, {"epoch": "e2"}, {"version": 2}])
def test_ids_of_two_registries_or_histories_and_ids_used_twice_are_not_guessed(
    changes: dict[str, Any],
) -> None:
    ids = schema_ids([row("a-value", 1, CUSTOMER), row("a-value", 1, PAYMENT, **changes)])
    assert "Customer" in name_of(ids, 1, "a")
    assert "Payment" in name_of(ids, 1, "a")
    assert (
        name_of(schema_ids([row("a-value", 1, CUSTOMER), row("b", 1, CUSTOMER, **changes)]), 1, "a")
        == "Customer"
    )


def test_a_reference_names_a_subject_of_its_own_context() -> None:
    eu, us, order = record("Common", city="string"), record("Common", zip="string"), record("O", c="Common")
    rows = [
        row("common", 2, us),
        row(":.eu:common", 7, eu),
        row(":.eu:orders-value", 9, order, schema_references=references(("common", 1))),
        row("orders2-value", 9, order, schema_references=references((":.eu:common", 1))),
        row("orders3-value", 9, order, schema_references=references(("common", 1)), epoch="e2"),
        row(":.:common", 3, us, epoch="e2"),
    ]
    ids = schema_ids(rows)

    def referred(topic: str) -> list[str]:
        meaning = ids.meaning(9, topic, "value")
        assert not isinstance(meaning, str)
        return [schema.text for schema in meaning.schema.references]

    compact = {text: json.dumps(json.loads(text), separators=(",", ":")) for text in (eu, us)}
    assert referred("orders") == [compact[eu]]
    assert referred("orders2") == [compact[eu]]
    assert referred("orders3") == [compact[us]]
    # One text with two different references is two schemas.
    assert "different schemas" in name_of(ids, 9, "unnamed")


def test_a_reference_to_a_version_that_was_registered_twice_is_not_guessed() -> None:
    rows = [
        row("common", 2, CUSTOMER),
        row("common", 3, PAYMENT),
        row("a-value", 1, '"string"', schema_references=references(("common", 1))),
    ]
    meaning = schema_ids(rows).meaning(1, "a", "value")
    assert not isinstance(meaning, str)
    assert meaning.schema.problem == "it names version 1 of 'common', which has had different schemas"


def test_an_id_of_several_json_schemas_is_json() -> None:
    rows = [
        row("a", 1, '{"title": "A"}', schema_type="JSON"),
        row(":.eu:b", 1, '{"title": "B"}', schema_type="JSON"),
    ]
    meaning = schema_ids(rows).meaning(1, "unnamed", "value")
    assert not isinstance(meaning, str)
    assert meaning.schema.kind == "JSON"


def test_records_without_subject_or_with_odd_schemas_keep_their_meaning() -> None:
    rows = [row(None, 1, '"string"', None), row("b-value", 2, "[" * 10_000), row("c", 3, '{"name": 7}')]
    ids = schema_ids(rows)
    for number in (1, 2, 3):
        assert not isinstance(ids.meaning(number, "a", "value"), str)


def use(number: int = 1, topic: str = "a", target: str = "a", part: Part = "value") -> IdUse:
    return IdUse(topic, target, part, number)


@pytest.mark.parametrize(
    ("source_rows", "target_rows", "uses", "words"),
    [
        pytest.param(
            [row("a-value", 1, CUSTOMER)], [row("a-value", 1, CUSTOMER)], [use()], [], id="the same"
        ),
        pytest.param(
            [row("a-value", 1, CUSTOMER)],
            [row("a-value", 1, CUSTOMER, scope="registry", epoch="")],
            [use()],
            [],
            id="the same in a registry of another name",
        ),
        pytest.param(
            [row("a-value", 1, CUSTOMER)],
            [row("invoices-value", 1, PAYMENT)],
            [use()],
            ["topic a: id 1 of its values is Customer .subject a-value, version 1, .* and Payment"],
            id="another schema",
        ),
        pytest.param(
            [row("a-value", 1, CUSTOMER)],
            [row("a-value", 2, CUSTOMER)],
            [use()],
            ["topic a: id 1 of its values is missing from the target's registry; it is Customer"],
            id="missing",
        ),
        pytest.param([row("a-value", 1, CUSTOMER)], [row("b", 9, PAYMENT)], [use(9)], [], id="no id of ours"),
        pytest.param([], [row("b", 9, PAYMENT)], [use(8)], [], id="no registry saved, and no id of theirs"),
        pytest.param(
            [],
            [row("b", 9, PAYMENT)],
            [use(9, part="key")],
            ["topic a: id 9 of its keys cannot be compared: no backup holds the source's registry"],
            id="no registry saved, and an id of theirs",
        ),
        pytest.param(
            [row("a-value", 1, CUSTOMER), row(":.eu:x", 1, PAYMENT)],
            [row("a-value", 1, CUSTOMER), row(":.eu:x", 1, PAYMENT)],
            [use(target="b"), use(topic="x", target="y")],
            [],
            id="the same registry, under other names of topics",
        ),
        pytest.param(
            [row("a-value", 1, CUSTOMER), row(":.eu:a-value", 1, PAYMENT)],
            [row("a-value", 1, CUSTOMER)],
            [use()],
            ["id 1 of its values cannot be compared: schema 1 means Customer"],
            id="not known which",
        ),
    ],
)
def test_ids_are_compared_with_those_of_the_target(
    source_rows: list[dict[str, Any]], target_rows: list[dict[str, Any]], uses: list[IdUse], words: list[str]
) -> None:
    sentences = mismatches(uses, schema_ids(source_rows), schema_ids(target_rows))
    assert len(sentences) == len(words)
    for sentence, pattern in zip(sentences, words, strict=True):
        assert re.search(pattern, sentence), sentence
