from __future__ import annotations

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from lakebackup.rows import tables as model
from lakebackup.rows.digest import Digest


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


@given(st.lists(st.text(), max_size=8), st.randoms())
def test_the_digest_depends_on_the_lines_but_not_on_their_order(lines: list[str], random: object) -> None:
    def digest(texts: list[str]) -> str:
        total = Digest()
        for line in texts:
            total.add(line)
        return total.hex()

    shuffled = list(lines)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert digest(lines) == digest(shuffled)
    assert digest([*lines, "x"]) != digest(lines)
    half, other_half = Digest(), Digest()
    for line in lines[::2]:
        half.add(line)
    for line in lines[1::2]:
        other_half.add(line)
    half.add_lanes(other_half.lanes)
    assert half.hex() == digest(lines)
    assert len(half.hex()) == 60
