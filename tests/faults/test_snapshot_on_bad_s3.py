"""Repeated backups of a snapshot to an S3 that fails at random, by runs that are killed at random."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support import kafka_truth as truth
from tests.support.s3 import S3Proxy
from tests.support.s3_faults import FaultProxy, Kind

from lakebackup.errors import EnvironmentProblem, NotFound
from lakebackup.storage import open_storage
from lakebackup.store.lease import break_lease
from lakebackup.store.reader import CatalogReader

pytestmark = [pytest.mark.spark, pytest.mark.s3]

# The faults of one request in ten. The contract's tests have requests that are answered late or never.
FAULTS: tuple[Kind, ...] = ("503", "503", "reset", "lost", "done but 500", "cut")
ROUNDS = 4


def change(tree: Path, dice: random.Random) -> dict[str, bytes]:
    """Add, remove and change files at random; returns the files then."""
    for file in list(tree.iterdir()):
        if dice.random() < 0.3:
            file.unlink()
    for name in dice.sample(range(30), 8):
        (tree / f"{name:06d}.sst").write_bytes(dice.randbytes(dice.randrange(1, 5000)))
    (tree / "CURRENT").write_bytes(dice.randbytes(16))
    return {file.name: file.read_bytes() for file in tree.iterdir()}


def backup_contents(repo: str) -> list[dict[str, bytes]]:
    """The contents of each backup, the oldest first, read without faults."""
    storage, reader = open_storage(repo), CatalogReader(repo)
    rows = reader.select("SELECT * FROM snapshot_files").read_all().to_pylist()
    backups = reader.select("SELECT number FROM backups WHERE state = 'complete' ORDER BY number").read_all()
    return [
        {
            row["name"]: storage.get(row["path"], start=row["position"], length=row["bytes"])
            for row in rows
            if row["added_in"] <= number and (row["gone_in"] is None or row["gone_in"] > number)
        }
        for number in backups["number"].to_pylist()
    ]


def kill(run: subprocess.Popen[bytes], proxy: FaultProxy, requests: int) -> bool:
    """Send SIGKILL after so many requests; returns whether the run had succeeded before."""
    request_count = len(proxy.requests) + requests
    truth.until(lambda: len(proxy.requests) >= request_count or run.poll() is not None, "requests come")
    run.kill()
    return run.wait() == 0


def break_leases(repo: str) -> None:
    """Break the leases as a person who knows that the run is dead, in place of waiting for their end."""
    for name, root in (("source-tablet", repo), ("catalog", f"{repo}/catalog")):
        with suppress(NotFound):
            break_lease(open_storage(root), name, "killed")


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_reported_backups_are_complete(seed: int, s3: S3Proxy, empty_catalog: Path, tmp_path: Path) -> None:
    dice, repo, tree = random.Random(seed), f"s3://{s3.bucket()}/kept", tmp_path / "tablet"
    storage = open_storage(repo)
    for file in empty_catalog.rglob("*"):
        if file.is_file():
            storage.put(f"catalog/{file.relative_to(empty_catalog).as_posix()}", file.read_bytes())
    tree.mkdir()
    log = tmp_path / "log"

    def begin(endpoint: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "lakebackup_jobs", "backup", "snapshot", str(tree), "--repo", repo],
                env={**os.environ, "AWS_ENDPOINT_URL_S3": endpoint}, stdout=output, stderr=output,
            )  # fmt: skip

    expected: list[dict[str, bytes]] = []
    with FaultProxy(s3.port) as proxy:
        proxy.chance = lambda: dice.choice(FAULTS) if dice.random() < 0.1 else None
        for number in range(ROUNDS):
            contents = change(tree, dice)
            succeeded = kill(begin(proxy.endpoint), proxy, dice.randrange(20, 120))
            break_leases(repo)
            for _ in range(6):
                if succeeded:
                    break
                code = begin(proxy.endpoint).wait(120)
                assert code in (0, EnvironmentProblem.exit_code), log.read_text()[-3000:]
                succeeded = code == 0
            assert succeeded, f"round {number}: {log.read_text()[-3000:]}"
            expected.append(contents)
            stored_contents = backup_contents(repo)
            assert stored_contents[-1] == contents, number
    # A killed run may have completed without reporting it: then the next one stores the same files once more.
    assert [
        files for i, files in enumerate(stored_contents) if i == 0 or files != stored_contents[i - 1]
    ] == expected
