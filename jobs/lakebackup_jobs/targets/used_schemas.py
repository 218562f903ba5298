"""Check whether schema ids in restored records mean the same in the target's registry.

By default the check reads only the newest files of each topic, at most LOOK_BYTES stored bytes, which takes a
second or two. On request it reads all files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from lakebackup.errors import Damaged
from lakebackup.plan.topics.restore import RestorePlan
from lakebackup.rules.schema_ids import IdUse, Part, SchemaIds, mismatches, schema_ids
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.format.records import select_records
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.kafka.format.used_ids import used_ids
from lakebackup_jobs.lifecycle.keyring import keyring
from lakebackup_jobs.targets.registries import Registries

#: The most stored bytes to read of each topic, and of all topics together.
LOOK_BYTES = 32 << 20
LOOK_BYTES_IN_ALL = 256 << 20
_UNLIMITED = 2**62
_PARTS: tuple[Part, ...] = ("key", "value")
# A topic whose records seem to use more ids than this holds no schema ids.
_MOST_IDS = 1_000
_THREADS = 4
_MOST_LISTED = 10


def compare_schemas(
    plan: RestorePlan, reader: CatalogReader, registries: Registries, *, all_files: bool
) -> list[str]:
    """Return a sentence for each schema id in restored records that means something else at the target, or
    does not exist there.

    If the target has no topic of a registry, nothing is compared, unless `all_files` is set.
    """
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
    """Return the schema ids in the keys and in the values of each topic. Of a topic with more than _MOST_IDS
    they are not complete."""
    limit = _UNLIMITED if all_files else min(LOOK_BYTES, LOOK_BYTES_IN_ALL // max(1, len(plan.topics)))
    roots = reader.destinations()
    roots = roots.with_keys(keyring(reader.with_rows("selected", plan.file), roots))
    ids: dict[tuple[str, Part], set[int]] = {}

    def collect_ids(file: StoredFile) -> None:
        try:
            reader = open_verified(roots, file)
        except Damaged:
            if all_files:
                raise
            return  # the restore reports the damage when it reads the file
        for columns in reader:
            block = select_records(columns, plan.from_ts, plan.to_ts)
            for part in _PARTS:
                numbers = ids.setdefault((file.scope, part), set())
                if len(numbers) <= _MOST_IDS:
                    numbers |= used_ids(block, part)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="schemas") as pool:
        for files in _batches(plan, reader, limit, registries):
            list(pool.map(collect_ids, files))
    return ids


def _batches(
    plan: RestorePlan, reader: CatalogReader, limit: int, registries: str
) -> Iterator[list[StoredFile]]:
    """Yield the files to read, a few at a time."""
    files_of_plan = reader.with_rows("selected", plan.file)
    for batch in files_of_plan.query("schema_id_files", most=limit, registries=registries):
        files = [StoredFile(**row) for row in batch.to_pylist()]
        for begin in range(0, len(files), _THREADS):
            yield files[begin : begin + _THREADS]
