from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.rows import tables as model
from lakebackup.rows.backups import DataFile
from lakebackup.rows.digest import Digest

FILE = DataFile(
    destination="d1",
    path="c/" + "0" * 32 + "/topics/t/partition=0/t+0-0000000000.data",
    backup_id="20260101T000000Z-00000000",
    added_in=1,
    source="c",
    scope="t",
    epoch="0" * 32,
    region="0",
    format="kafka-avro-2",
    codec="zstandard",
    bytes=10,
    raw_bytes=20,
    sha256="ab",
    entries=1,
    min_ts=-1,
    max_ts=5,
    start_position=0,
    end_position=1,
)


def test_every_table_has_a_schema_in_the_order_of_its_class() -> None:
    for table, kind in model.TABLES.items():
        assert model.ARROW_SCHEMAS[table].names == [field.name for field in fields(kind)]
        assert model.spark_columns(table).count(",") == len(fields(kind)) - 1


def test_types_and_nullability_follow_the_annotations() -> None:
    columns = {column.name: column for column in model.columns("files")}
    assert columns["level"] == model.Column("level", "int32", False)
    assert columns["min_begin_ts"] == model.Column("min_begin_ts", "int64", True)
    assert columns["role"].choices == ("data", "meta", "schema", "config")
    assert "bridged BOOLEAN NOT NULL" in model.spark_columns("gaps")
    assert "leader_epoch INT," in model.spark_columns("positions")


def test_a_row_goes_through_json_and_comes_back() -> None:
    line = model.json_line(replace(FILE, scope="ü\n\u2028"))
    assert "\n" not in line
    assert model.from_row(DataFile, json.loads(line)) == replace(FILE, scope="ü\n\u2028")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bytes": "10"}, "bytes is '10'"),
        ({"bytes": True}, "bytes is True"),
        ({"bytes": None}, "bytes is None"),
        ({"role": "other"}, "role is 'other'"),
        ({"colour": 1}, "unknown column colour"),
    ],
)
def test_a_row_with_wrong_values_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.from_row(DataFile, model.as_row(FILE) | change)


def test_a_missing_column_is_named() -> None:
    row = model.as_row(FILE)
    del row["sha256"]
    with pytest.raises(ValueError, match="sha256 is missing"):
        model.from_row(DataFile, row)


@given(st.lists(st.text(), max_size=8), st.randoms())
def test_the_digest_depends_on_the_lines_but_not_on_their_order(lines: list[str], random: object) -> None:
    def digest(some: list[str]) -> str:
        total = Digest()
        for line in some:
            total.add(line)
        return total.hex()

    shuffled = list(lines)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert digest(lines) == digest(shuffled)
    assert digest([*lines, "x"]) != digest(lines)
    half, rest = Digest(), Digest()
    for line in lines[::2]:
        half.add(line)
    for line in lines[1::2]:
        rest.add(line)
    half.update(rest)
    assert half.hex() == digest(lines)
    assert len(half.hex()) == 60
