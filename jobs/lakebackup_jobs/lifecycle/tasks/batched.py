"""Groups items by their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def batched(items: Iterable[T], *limits: tuple[Callable[[T], int], int]) -> Iterator[list[T]]:
    """Group items into lists. Each limit is a function for an item's weight, and the sum of weights at which
    a list is full."""
    batch: list[T] = []
    sums = [0 for _ in limits]
    for item in items:
        batch.append(item)
        sums = [total + weight(item) for total, (weight, _) in zip(sums, limits, strict=True)]
        if any(total >= limit for total, (_, limit) in zip(sums, limits, strict=True)):
            yield batch
            batch, sums = [], [0 for _ in limits]
    if batch:
        yield batch
