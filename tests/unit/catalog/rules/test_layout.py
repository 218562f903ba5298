from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import UsageProblem
from lakebackup.rules import layout

EPOCH = "0123456789abcdef" * 2
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in (".", ".."))


def test_the_layout_is_the_documented_one() -> None:
    assert (
        layout.data_path("prod", EPOCH, "orders", 3, 7)
        == f"prod/{EPOCH}/topics/orders/partition=3/orders+3-0000000007.data"
    )
    backup = "20260131T134511Z-0a1b2c3d"
    assert layout.parts_path("prod", backup, 4) == f"prod/backups/{backup}/parts/000004.jsonl"
    assert layout.manifest_path("prod", backup) == f"prod/backups/{backup}/manifest.json"
    assert layout.marker_path("prod", backup, "complete") == f"prod/backups/{backup}/complete"
    assert layout.lease_path("source-prod", 12) == "leases/source-prod/000000000012.json"


@given(TOPICS, st.integers(0, 2**31 - 1), st.integers(0, 10**12))
def test_a_data_path_can_be_parsed_and_fits_a_file_system(topic: str, partition: int, seq: int) -> None:
    path = layout.data_path("prod", EPOCH, topic, partition, seq)
    name = path.removeprefix(layout.partition_folder("prod", EPOCH, topic, partition))
    assert layout.parse_seq(name, topic, partition) == seq
    assert all(len(part.encode()) <= 255 for part in path.split("/"))


@pytest.mark.parametrize(
    "name",
    ["", "manifest.json", "b+1-0000000000.data", "a+2-0000000000.data", "a+01-0000000000.data",
     "x/a+1-0000000000.data", "a+1-00000000000.data", "a+1-0000000000.data.tmp"],
)  # fmt: skip
def test_other_names_are_no_data_files(name: str) -> None:
    assert layout.parse_seq(name, "a", 1) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", "-a", ".tmp", "a b", "catalog", "leases", "audit", "é", "x" * 129]
)
def test_a_source_that_could_leave_its_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageProblem, match="name of a source"):
        layout.check_source(name)


@pytest.mark.parametrize("epoch", ["", "0" * 31, "G" * 32, EPOCH.upper(), "../" + "0" * 29])
def test_an_epoch_is_32_lower_hex_digits(epoch: str) -> None:
    with pytest.raises(UsageProblem, match="epoch"):
        layout.data_path("prod", epoch, "orders", 0, 0)


def test_ids_are_in_utc_sort_by_time_and_differ() -> None:
    moment = datetime(2026, 1, 31, 15, 45, 11, tzinfo=timezone(timedelta(hours=2)))
    first, second = layout.new_backup_id(moment), layout.new_backup_id(moment)
    assert first.startswith("20260131T134511Z-")
    assert first != second
    assert layout.check_backup_id(first) == first
    assert layout.new_backup_id(moment + timedelta(seconds=1)) > first
    with pytest.raises(ValueError, match="time zone"):
        layout.new_backup_id(datetime.fromisoformat("2026-01-01"))
    assert layout.new_backup_id(datetime(2026, 1, 1, tzinfo=UTC))[:16] == "20260101T000000Z"


@pytest.mark.parametrize("backup_id", ["", "../x", "20260131T134511Z", "20260131T134511Z-0A1B2C3D"])
def test_a_backup_id_has_one_form(backup_id: str) -> None:
    with pytest.raises(UsageProblem, match="backup id"):
        layout.manifest_path("prod", backup_id)
