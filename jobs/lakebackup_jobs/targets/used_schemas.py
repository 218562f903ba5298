"""Whether the ids of schemas in restored records mean the same in the target's registry.

Ids are looked for in the newest files of each topic, LOOK_BYTES of stored bytes at most, or in all files
when nothing may be missed. So the look takes a second or two, and grows with the backups only on request.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakebackup.errors import Damaged
from lakebackup.rules.schema_ids import IdUse, SchemaIds, mismatches, schema_ids
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup.rules.schema_ids import Part
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.targets.registries import Registries

#: Stored bytes of each topic that are looked into, and of all topics together.
LOOK_BYTES = 32 << 20
LOOK_BYTES_IN_ALL = 256 << 20
_ALL = 2**62
_PARTS: tuple[Part, ...] = ("key", "value")
# Bytes that look like so many ids are none.
_MOST_IDS = 1_000
_THREADS = 4
_MOST_LISTED = 10


def compare_schemas(
    plan: RestorePlan, reader: CatalogReader, registries: Registries, *, all_files: bool
) -> list[str]:
    """Sentences on the ids that the restored records use and that mean something else at the target, or
    nothing. Without a registry's topic there, there is nothing to compare, unless `all_files`."""
    target_ids = registries.at_target(plan)
    if target_ids is None and not all_files:
        return []
    source_ids = schema_ids(reader.rows("value_schemas", source=plan.source))
    ids_by_topic = _ids_by_topic(plan, reader, ",".join(sorted(registries.of(plan))), all_files=all_files)
    targets = {topic.scope: topic.target for topic in plan.topics}
    uses = [
        IdUse(topic, targets[topic], part, number)
        for (topic, part), numbers in sorted(ids_by_topic.items())
        for number in sorted(numbers)
        if len(numbers) <= _MOST_IDS
    ]
    sentences = mismatches(uses, source_ids, target_ids or SchemaIds({}))
    count = len(sentences) - _MOST_LISTED
    return sentences[:_MOST_LISTED] + ([f"and {count} more ids of schemas"] if count > 0 else [])


def _ids_by_topic(
    plan: RestorePlan, reader: CatalogReader, registries: str, *, all_files: bool
) -> Mapping[tuple[str, Part], set[int]]:
    """The ids in the keys and values of each topic; of too many ids, some more than _MOST_IDS."""
    from lakebackup_jobs.kafka.format.records import within
    from lakebackup_jobs.kafka.format.used_ids import used_ids

    most = _ALL if all_files else min(LOOK_BYTES, LOOK_BYTES_IN_ALL // max(1, len(plan.topics)))
    roots = reader.destinations()
    ids: dict[tuple[str, Part], set[int]] = {}

    def look(file: StoredFile) -> None:
        try:
            reader = open_verified(roots, file)
        except Damaged:
            if all_files:
                raise
            return  # the restore reports it when it needs the file
        for columns in reader:
            block = within(columns, plan.from_ts, plan.to_ts)
            for part in _PARTS:
                numbers = ids.setdefault((file.scope, part), set())
                if len(numbers) <= _MOST_IDS:
                    numbers |= used_ids(block, part)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="schemas") as pool:
        for files in _batches(plan, most, registries):
            list(pool.map(look, files))
    return ids


def _batches(plan: RestorePlan, most: int, registries: str) -> Iterator[list[StoredFile]]:
    """The files to look into, a few at a time."""
    for batch in plan.chosen.query("schema_id_files", most=most, registries=registries):
        files = [StoredFile(**row) for row in batch.to_pylist()]
        for begin in range(0, len(files), _THREADS):
            yield files[begin : begin + _THREADS]
