"""Rows of transactions that may or may not have been committed, as the next attempt finds them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.support.rows import filled

from lakebackup.errors import NoPermission
from lakebackup.rows.topics import Translation
from lakebackup.storage import Storage
from lakebackup.store.staged_translations import StagedRows, StagedTranslations
from lakebackup.store.translations import encode, table_of

FOLDER = "restores/r/"
ROWS = np.array([[0, 0, 5, 0], [5, 5, 5, 5]], np.int64)
OTHER_ROWS = np.array([[7, 7, 9, 30], [9, 9, 12, 32], [12, 12, 12, 36]], np.int64)


def identity(region: str) -> Translation:
    return filled(
        Translation, restore_id="r", at=1, epoch="e", region=region, cluster="c", target_scope="copy",
        target_epoch="t", target_region=region,
    )  # fmt: skip


def staged_values(staged: StagedTranslations, region: str) -> list[tuple[int, list[list[int]]]]:
    return [(entry.position, entry.rows.tolist()) for entry in staged.of(identity(region))]


def test_the_rows_of_each_partition_are_read_with_their_position(storage: Storage) -> None:
    StagedTranslations(storage, FOLDER, "p").stage(
        [(identity("3"), StagedRows(ROWS, 17)), (identity("4"), StagedRows(OTHER_ROWS, 12))]
    )
    resumed = StagedTranslations(storage, FOLDER, "p")
    assert staged_values(resumed, "3") == [(17, ROWS.tolist())]
    assert staged_values(resumed, "4") == [(12, OTHER_ROWS.tolist())]
    assert staged_values(resumed, "5") == []
    assert staged_values(StagedTranslations(storage, FOLDER, "another"), "3") == []


def test_an_attempt_that_was_replaced_overwrites_nothing(storage: Storage) -> None:
    replaced, newer = (StagedTranslations(storage, FOLDER, "p") for _ in range(2))
    newer.stage([(identity("3"), StagedRows(OTHER_ROWS, 12))])
    replaced.stage([(identity("3"), StagedRows(ROWS, 5))])
    assert sorted(entry[0] for entry in staged_values(StagedTranslations(storage, FOLDER, "p"), "3")) == [
        5,
        12,
    ]


def test_decided_rows_of_all_attempts_are_gone(storage: Storage) -> None:
    StagedTranslations(storage, FOLDER, "p").stage([(identity("3"), StagedRows(ROWS, 5))])
    resumed = StagedTranslations(storage, FOLDER, "p")
    resumed.stage([(identity("3"), StagedRows(OTHER_ROWS, 12))])
    resumed.retire()
    assert list(storage.list(FOLDER)) == []


def test_an_account_that_may_not_delete_leaves_nothing_that_is_read_again(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: str) -> None:
        raise NoPermission("no")

    staged = StagedTranslations(storage, FOLDER, "p")
    staged.stage([(identity("3"), StagedRows(ROWS, 5))])
    monkeypatch.setattr(storage, "delete", refuse)
    staged.retire()
    assert staged_values(StagedTranslations(storage, FOLDER, "p"), "3") == []


def test_rows_that_an_earlier_version_staged_are_read(storage: Storage) -> None:
    table: pa.Table = table_of(identity("3"), ROWS).replace_schema_metadata({"position": "17"})
    storage.put(f"{FOLDER}aside/e-3.parquet", encode(table))
    resumed = StagedTranslations(storage, FOLDER, "p")
    assert staged_values(resumed, "3") == [(17, ROWS.tolist())]
    resumed.retire()
    assert list(storage.list(FOLDER)) == []
