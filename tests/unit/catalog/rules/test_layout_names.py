"""One encoding turns names into parts of paths. It loses nothing and fits every storage."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakebackup.rules import layout

EPOCH = "0123456789abcdef" * 2
BACKUP = "20260131T134511Z-0a1b2c3d"
TOPICS = st.text("aZ9._-", min_size=1, max_size=249).filter(lambda name: name not in (".", ".."))
SOURCES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True).filter(
    lambda name: name not in layout.RESERVED
)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0") | st.sampled_from(".%2E#~"))
LONGEST_SOURCE, LONGEST_TOPIC = "a" + "." * 127, "." * 249


def require_portable(path: str, longest: int = 866) -> None:
    assert not path.startswith("/")
    assert ".." not in path
    assert len(path.encode()) <= longest
    parts = path.removesuffix("/").split("/")
    assert all(part not in ("", ".") and len(part.encode()) <= 255 for part in parts)


@given(NAMES)
@example("")
@example(".")
@example("...")
@example("a.%2Eb")
@example("x" * 250)
def test_a_name_is_read_back_from_its_part_of_a_path(name: str) -> None:
    part = layout.encode_name(name)
    assert 0 < len(part) <= 200
    assert ".." not in part
    assert "/" not in part
    if len(part) < 67 or layout.decode_name(part) is not None:
        assert layout.decode_name(part) == name


@given(st.lists(NAMES | st.builds(lambda name: "x" * 200 + name, NAMES), min_size=2, max_size=2, unique=True))
def test_different_names_are_different_parts(names: list[str]) -> None:
    first, second = map(layout.encode_name, names)
    assert first != second


@pytest.mark.parametrize("part", ["a..b", "%2e", "a%41", "%", "%23" + "0" * 64])
def test_a_part_that_encodes_no_name_has_none(part: str) -> None:
    assert layout.decode_name(part) == ("" if part == "%" else None)


def test_a_digest_is_not_the_part_of_another_name() -> None:
    digest = layout.encode_name("x" * 201)
    assert layout.encode_name(digest) != digest
    assert layout.encode_name("#" + digest.removeprefix("%23")) != digest


@given(SOURCES, TOPICS, st.integers(0, 2**31 - 1), st.integers(0, 10**12))
@example(LONGEST_SOURCE, LONGEST_TOPIC, 2**31 - 1, 10**12)
@example("prod", "orders..retry", 0, 0)
def test_every_legal_topic_and_source_has_a_path(source: str, topic: str, partition: int, seq: int) -> None:
    path = layout.data_path(source, EPOCH, topic, partition, seq)
    require_portable(path)
    assert layout.source_of(path.partition("/")[0]) == source
    name = path.removeprefix(layout.partition_folder(source, EPOCH, topic, partition))
    assert layout.parse_seq(name, topic, partition) == seq


@given(SOURCES, NAMES, NAMES, st.lists(NAMES, min_size=1).map("/".join))
@example(LONGEST_SOURCE, "x" * 300, "y" * 300, "z/" * 600)
def test_every_file_of_a_snapshot_has_a_path(source: str, scope: str, region: str, name: str) -> None:
    for compressed, key_id in product((False, True), (None, "0a1b2c3d4e5f6071")):
        path = layout.snapshot_path(source, BACKUP, scope, region, name, compressed=compressed, key_id=key_id)
        require_portable(path, longest=870)
        if key_id is not None:
            second_path = layout.snapshot_path(
                source, BACKUP, scope, region, name, compressed=compressed, key_id="f" * 16
            )
            assert layout.with_key_id(path, "f" * 16) == second_path != path


@given(NAMES, NAMES)
@example("a", "a.zst")
@example("a", "a.ZST")
@example("a.zst", "a%2Ezst")
def test_compressed_files_and_others_have_different_paths(name: str, second_name: str) -> None:
    paths = [
        layout.snapshot_path("s", BACKUP, "t", "a", file, compressed=compressed).lower()
        for file, compressed in ((name, True), (name, False), (second_name, False))
    ]
    assert paths[0].endswith(".zst")
    assert not any(path.endswith(".zst") for path in paths[1:])


@given(SOURCES, NAMES)
@example(LONGEST_SOURCE, "tikv.")
def test_every_store_of_a_log_has_a_path(source: str, store: str) -> None:
    file_key = {"table_id": 2**63, "region": 2**63, "min_ts": 2**63, "cf": "default", "op": "put"}
    require_portable(layout.log_path(source, BACKUP, **file_key, store=store, suffix=".zst.aes256gcm"))


@given(SOURCES)
@example(LONGEST_SOURCE)
def test_every_source_has_a_lease_and_records_of_its_own(source: str) -> None:
    require_portable(layout.lease_path(f"source-{source}", 1))
    require_portable(layout.in_progress_path(source))
    require_portable(layout.stream_meta_path(source, BACKUP, 2**63, 1))


def test_names_without_two_dots_in_a_row_keep_their_paths() -> None:
    assert layout.partition_folder("prod.eu", EPOCH, "x" * 249, 0) == (
        f"prod.eu/{EPOCH}/topics/{'x' * 249}/partition=0/"
    )
    assert layout.partition_folder("prod", EPOCH, "orders.", 0) == f"prod/{EPOCH}/topics/orders./partition=0/"
    assert layout.source_folder("a..b") == "a.%2Eb/"
    assert layout.topic_folder("orders..retry") == "topics/orders.%2Eretry/"


def test_a_path_in_an_archive_is_read_back() -> None:
    for path in ("2026/a..b-1/data/shard_0.sqlite", "plain/a.b/%41", "..."):
        stored_path = layout.archive_path("src", path)
        assert ".." not in stored_path
        assert layout.path_in_archive("src", stored_path) == path


def test_folders_that_are_no_sources() -> None:
    assert [layout.source_of(name) for name in ("catalog", "leases", "a..b", "-a", "%2E")] == [None] * 5
