"""Spark still gives the answers that are recorded in tests/sql/functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.function_answers import equal_answers, recorded, spark_answers_of, templates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.mark.parametrize("area", sorted(templates()))
def test_spark_gives_the_recorded_answers(area: str, spark: SparkSession) -> None:
    by_template = recorded()
    lines = [line for line in templates()[area] if line in by_template]
    answers = spark_answers_of(spark, lines)
    differing = [
        (line, recorded_answer, answer)
        for line in lines
        for recorded_answer, answer in zip(by_template[line], answers[line], strict=True)
        if not equal_answers(answer, recorded_answer)
    ]
    assert differing == []
