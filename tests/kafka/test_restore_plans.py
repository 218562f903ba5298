"""A saved plan carried out: exactly its files, also when other backups came in since it was cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup_jobs.targets import kafka

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def some(value: bytes, count: int) -> list[Record]:
    return [Record(i % 2, b"k%d" % i, value, (), 1_600_000_000_000 + i) for i in range(count)]


def test_a_plan_is_carried_out_and_goes_on_with_its_files(
    lab: Lab, topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, copy = topic("planned", partitions=2), topic("copy", partitions=2)
    truth.produce(lab.bootstrap, name, some(b"first", 60))
    lab.backup(name)
    wanted = truth.contents(lab.bootstrap, name)
    plan = str(tmp_path / "plan.json")
    told = lab.restore(name, maps={name: copy}, dry_run=True, save_plan=plan)
    assert (told["files"], told["entries_in_files"]) == (2, 60)

    def die(*_given: Any) -> None:
        raise EnvironmentProblem("the power went out")

    with monkeypatch.context() as patch:
        patch.setattr(kafka.KafkaTarget, "write", die)
        with pytest.raises(EnvironmentProblem, match="power"):
            lab.restore(plan=plan)
    truth.produce(lab.bootstrap, name, some(b"later", 10))
    lab.backup(name)
    done = lab.restore(plan=plan)
    assert (done["resumed"], done["entries"]) == (True, 60)
    assert truth.contents(lab.bootstrap, copy) == wanted
    with pytest.raises(Refused, match="2 files that it did not have came in"):
        lab.restore(plan=plan)
