"""Fixtures for the storage under test: it sits behind a proxy that injects faults."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from botocore.loaders import JSONFileLoader
from botocore.retries.standard import ExponentialBackoff
from tests.support.s3 import S3Proxy
from tests.support.s3_faults import FaultProxy
from tests.support.s3_storage import options

from lakebackup.storage.s3 import S3Storage

LOAD_FILE = cache(JSONFileLoader().load_file)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the SDK retry at once and load its model of S3 once, instead of for each client."""
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.01)
    monkeypatch.setattr(JSONFileLoader, "load_file", lambda _, path: LOAD_FILE(path))


@pytest.fixture
def proxy(s3: S3Proxy) -> Iterator[FaultProxy]:
    with FaultProxy(s3.port) as running:
        yield running


@pytest.fixture
def bucket(s3: S3Proxy) -> str:
    return s3.bucket()


@pytest.fixture
def storage(proxy: FaultProxy, bucket: str) -> S3Storage:
    """A storage whose requests all go through `proxy`."""
    return S3Storage(f"s3://{bucket}/root", options(endpoint=proxy.endpoint))
