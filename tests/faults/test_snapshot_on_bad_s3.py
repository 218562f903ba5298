"""A snapshot backed up again and again to an S3 that fails at random, by runs that are killed at random."""

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

# What befalls one request of ten. Requests that are answered late or never are in the contract's tests.
FAULTS: tuple[Kind, ...] = ("503", "503", "reset", "lost", "done but 500", "cut")
ROUNDS = 4


def change(tree: Path, chance: random.Random) -> dict[str, bytes]:
    """Files come, go and get other contents; what there is then."""
    for file in list(tree.iterdir()):
        if chance.random() < 0.3:
            file.unlink()
    for name in chance.sample(range(30), 8):
        (tree / f"{name:06d}.sst").write_bytes(chance.randbytes(chance.randrange(1, 5000)))
    (tree / "CURRENT").write_bytes(chance.randbytes(16))
    return {file.name: file.read_bytes() for file in tree.iterdir()}


def held(place: str) -> list[dict[str, bytes]]:
    """What each backup holds, the oldest first, read without a fault."""
    storage, reader = open_storage(place), CatalogReader(place)
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
    """SIGKILL after so many requests; whether it had ended well before."""
    last = len(proxy.requests) + requests
    truth.until(lambda: len(proxy.requests) >= last or run.poll() is not None, "requests come")
    run.kill()
    return run.wait() == 0


def free(place: str) -> None:
    """A person knows that the run is dead, and does not wait for its leases to end."""
    for name, root in (("source-tablet", place), ("catalog", f"{place}/catalog")):
        with suppress(NotFound):
            break_lease(open_storage(root), name, "killed")


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_told_to_be_backed_up_is(seed: int, s3: S3Proxy, empty_catalog: Path, tmp_path: Path) -> None:
    chance, place, tree = random.Random(seed), f"s3://{s3.bucket()}/kept", tmp_path / "tablet"
    storage = open_storage(place)
    for file in empty_catalog.rglob("*"):
        if file.is_file():
            storage.put(f"catalog/{file.relative_to(empty_catalog).as_posix()}", file.read_bytes())
    tree.mkdir()
    log = tmp_path / "log"

    def begin(endpoint: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "lakebackup_jobs", "backup", "snapshot", str(tree), "--repo", place],
                env={**os.environ, "AWS_ENDPOINT_URL_S3": endpoint}, stdout=output, stderr=output,
            )  # fmt: skip

    expected: list[dict[str, bytes]] = []
    with FaultProxy(s3.port) as proxy:
        proxy.chance = lambda: chance.choice(FAULTS) if chance.random() < 0.1 else None
        for number in range(ROUNDS):
            wanted = change(tree, chance)
            told = kill(begin(proxy.endpoint), proxy, chance.randrange(20, 120))
            free(place)
            for _ in range(6):
                if told:
                    break
                code = begin(proxy.endpoint).wait(120)
                assert code in (0, EnvironmentProblem.exit_code), log.read_text()[-3000:]
                told = code == 0
            assert told, f"round {number}: {log.read_text()[-3000:]}"
            expected.append(wanted)
            found = held(place)
            assert found[-1] == wanted, number
    # A killed run may have been done without telling: the next one then backs the same files up once more.
    assert [files for i, files in enumerate(found) if i == 0 or files != found[i - 1]] == expected
