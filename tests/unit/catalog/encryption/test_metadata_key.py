"""The key of a repository's metadata: names are encrypted as they always were, and bound to their folders.

Layer: pure. A token that changes would hide every object that earlier runs have stored.
"""

from __future__ import annotations

import pickle
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.encryption.metadata_key import MetadataKey
from lakebackup.encryption.objects import DataKey

KEY = MetadataKey(DataKey("0011223344556677", bytes(range(32))))
NAMES = st.text(string.printable.replace("/", ""), min_size=1, max_size=100)


def test_names_have_the_tokens_of_earlier_versions() -> None:
    assert KEY.names.token("", "prod") == "LIWzX2Jr25DOfFJRWdZ8nDqUwMk"
    assert KEY.names.token("prod/", "begun.json") == "hYRSYoOsRYUX4zxpd2qZUTMYmkdnxUm0QjE"
    assert KEY.contents.key.hex() == "597f5237a05e8f8d0eb5747a98da0197afd3f20d2eacc8d1f8d668d7fccda62b"


@given(NAMES, NAMES)
def test_a_token_gives_the_name_in_its_folder_alone(folder: str, name: str) -> None:
    token = KEY.names.token(f"{folder}/", name)
    assert set(token) <= {*string.ascii_letters, *string.digits, "-", "_"}
    assert KEY.names.name(f"{folder}/", token) == name
    assert KEY.names.name(f"{folder}x/", token) is None
    changed = ("A" if token[0] != "A" else "B") + token[1:]
    assert KEY.names.name(f"{folder}/", changed) is None


@pytest.mark.parametrize("token", ["", "prod", "A" * 22, "not base64!", ".tmp"])
def test_a_name_of_another_program_is_no_token(token: str) -> None:
    assert KEY.names.name("", token) is None


def test_the_file_gives_the_key_back(tmp_path: Path) -> None:
    file = tmp_path / "metadata.key"
    file.touch(0o600)
    file.write_bytes(KEY.file_content)
    loaded = MetadataKey.load(file)
    assert (loaded.key_id, loaded.data_key.key) == (KEY.key_id, KEY.data_key.key)
    _ = loaded.names  # which cannot be pickled
    assert pickle.loads(pickle.dumps(loaded)) == KEY
    assert KEY.data_key.key.hex() not in repr(KEY)
