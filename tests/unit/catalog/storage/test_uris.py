from __future__ import annotations

from pathlib import Path

import pytest

from lakebackup.errors import UsageProblem
from lakebackup.storage import open_storage
from lakebackup.storage.uris import normalized


@pytest.mark.parametrize(
    "uri", ["a/../b", "/a//b/", "file:///a/b", "file://host/a", "s3://bucket", "s3a://bucket/a/b/"]
)
def test_a_normalized_uri_is_that_of_the_storage(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert normalized(uri) == open_storage(uri).uri


@pytest.mark.parametrize("uri", ["http://a/b", "s3://", "s3://key:secret@bucket/a", "s3://bucket/a/../b"])
def test_an_invalid_uri_is_refused(uri: str) -> None:
    with pytest.raises(UsageProblem) as refused:
        normalized(uri)
    assert "secret" not in str(refused.value)
