"""Clusters of several brokers, for tests that stop some of them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Self

from lakebackup_jobs.demo.broker import Broker, random_id


class Cluster:
    """Brokers of one cluster, each also a controller: a majority must run. As a context manager it runs.

    `properties` apply to every node. Internal topics are replicated to all nodes.
    """

    def __init__(self, folder: Path, *, nodes: int = 3, properties: Mapping[str, str] | None = None) -> None:
        replicated = {
            "offsets.topic.replication.factor": str(nodes),
            "transaction.state.log.replication.factor": str(nodes),
            **(properties or {}),
        }
        self.nodes = [
            _Member(folder / f"node-{node}", node=node, properties=replicated) for node in range(1, nodes + 1)
        ]
        formatting = Lock()
        for member in self.nodes:
            member.join(self.nodes, formatting)

    @property
    def bootstrap(self) -> str:
        """Value for bootstrap.servers: all nodes, whether they run or not."""
        return ",".join(node.bootstrap for node in self.nodes)

    def start(self, seconds: float = 90) -> Self:
        """Start the nodes that do not run, and wait until each answers."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for _ in pool.map(lambda node: node.start(seconds), self.nodes):
                pass
        return self

    def stop(self) -> None:
        """Kill all nodes at once: the last ones would wait in vain for a controller to release them."""
        for node in self.nodes:
            node.kill()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Member(Broker):
    """A node of a cluster of several."""

    def join(self, members: Sequence[_Member], formatting: Lock) -> None:
        self._members, self._formatting = members, formatting
        voters = ",".join(f"{m.node}@127.0.0.1:{m._controller}" for m in members)
        self._extra["controller.quorum.voters"] = voters

    def _properties(self) -> dict[str, str]:
        properties = super()._properties()
        del properties["controller.quorum.bootstrap.servers"]
        return properties

    def _new_cluster(self) -> list[str]:
        return ["-t", random_id()]

    def _format(self, command: list[str], settings: Path, seconds: float) -> None:
        """Format once, in the first node; the others copy its files, since each format starts a JVM."""
        with self._formatting:
            formatted = next((member for member in self._members if member.identities.exists()), None)
            if formatted is None:
                super()._format(command, settings, seconds)
                return
            folder = self.identities.parent
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(formatted.identities.parent / "bootstrap.checkpoint", folder)
            own_values = {"node.id": str(self.node), "directory.id": random_id()}
            lines = [line.partition("=") for line in formatted.identities.read_text("utf-8").splitlines()]
            self.identities.write_text(
                "".join(f"{name}={own_values.get(name, value)}\n" for name, equals, value in lines if equals),
                "utf-8",
            )
