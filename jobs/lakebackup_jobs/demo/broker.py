"""Runs a real Kafka broker (a KRaft node on the loopback interface) for the demo and the tests."""

from __future__ import annotations

import argparse
import signal
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.runtime.child import Child, free_port, tail
from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.java.jars import class_path


class Broker:
    """A broker whose data is in a folder. As a context manager, it runs inside the block.

    Folder, port and topics survive stop, kill and start. `properties` override the defaults of
    server.properties. `node` is the broker's id in its cluster. `java_options` suit a few topics: they start
    fast and take little memory.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        node: int = 1,
        java_options: Sequence[str] = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    ) -> None:
        self.node = node
        self._java_options = java_options
        self.folder = Path(folder).resolve()
        self.port = port or free_port()
        self.log = self.folder / "broker.log"
        self._controller = free_port()
        self._extra = dict(properties or {})
        self._child: Child | None = None

    @property
    def bootstrap(self) -> str:
        """The value for bootstrap.servers."""
        return f"127.0.0.1:{self.port}"

    @property
    def identities(self) -> Path:
        """The file with the ids of the cluster and the node, which formatting writes last."""
        return self.folder / "data" / "meta.properties"

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive."""
        return self._child is not None and self._child.running

    def start(self, seconds: float = 90) -> Self:
        """Start the broker and wait until it answers. Raises EnvironmentProblem with the end of its log."""
        if self.running:
            return self
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self.folder / "server.properties"
        settings.write_text("".join(f"{k}={v}\n" for k, v in self._properties().items()), "utf-8")
        command = self._java()
        if not self.identities.exists():
            self._format(command, settings, seconds)
        self._child = Child([*command, "kafka.Kafka", str(settings)], self.log)
        try:
            self._wait(time.monotonic() + seconds, self._child)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Shut the broker down."""
        if self._child:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """Kill the broker (SIGKILL), like a crash."""
        if self._child:
            self._child.kill()
            self._child = None

    def restart(self) -> Self:
        """Stop the broker if it runs, and start it on the same folder and port."""
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _properties(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node),
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller}",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            # one node cannot replicate, and internal topics with 50 partitions would only cost start-up time
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # after a kill the controller accepts the node again only when its old session has expired
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "log.cleaner.backoff.ms": "500",
            "log.cleaner.dedupe.buffer.size": "16777216",
            **self._extra,
        }

    def _java(self) -> list[str]:
        with as_file(files("lakebackup_jobs.runtime.java") / "log4j2.properties") as log4j:
            log_option = f"-Dlog4j2.configurationFile={log4j}"
            java = str(java_home() / "bin" / "java")
            return [java, *self._java_options, log_option, "-cp", class_path("kafka")]

    def _format(self, command: list[str], settings: Path, seconds: float) -> None:
        try:
            process = subprocess.run(
                [*command, "kafka.tools.StorageTool", "format", *self._new_cluster(), "-c", settings],
                capture_output=True, text=True, timeout=seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise EnvironmentProblem(
                f"Formatting {self.folder} for Kafka took over {seconds:.0f} s."
            ) from error
        if process.returncode:
            raise EnvironmentProblem(
                f"Kafka refused to format {self.folder}: {(process.stdout + process.stderr).strip()[-1500:]}",
                hint="Give an empty, writable folder.",
            )

    def _new_cluster(self) -> list[str]:
        return ["--standalone", "-t", random_id()]

    def _log_end(self) -> str:
        return f"End of {self.log}:\n{tail(self.log)}"

    def _identity(self) -> str:
        """The cluster id that formatting wrote; empty when there is none."""
        lines = self.identities.read_text("utf-8").splitlines()
        return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), "")

    def _wait(self, deadline: float, child: Child) -> None:
        identity = self._identity()
        admin = AdminClient(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        )
        while time.monotonic() < deadline:
            if not child.running:
                raise EnvironmentProblem(
                    f"The Kafka broker on {self.bootstrap} ended while starting. {self._log_end()}",
                    hint="Often the port or the folder is in use by another broker.",
                )
            try:
                metadata = admin.list_topics(timeout=0.5)
            except KafkaException:
                continue
            # Otherwise another broker answers on this port.
            if self.node in metadata.brokers and metadata.cluster_id == identity:
                return
        raise EnvironmentProblem(
            f"The Kafka broker on {self.bootstrap} did not answer in time. {self._log_end()}"
        )


def random_id() -> str:
    """A random id in the form of Kafka's cluster ids."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


def main(argv: list[str] | None = None) -> int:
    """`python -m lakebackup_jobs.demo.broker [--dir D] [--port P]`: runs a broker until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--dir", type=Path, help="folder for its data (default: a temporary one)")
    parser.add_argument("--port", type=int, help="port on 127.0.0.1 (default: 9092)", default=9092)
    options = parser.parse_args(argv)
    stops = {signal.SIGINT, signal.SIGTERM}
    # Blocked here and handled below, so that no signal interrupts a start or a stop.
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    with (
        tempfile.TemporaryDirectory(prefix="lakebackup-broker-") as temporary,
        Broker(options.dir or Path(temporary), port=options.port) as broker,
    ):
        print(f"Kafka runs on {broker.bootstrap}, folder {broker.folder}. Ctrl-C ends it.", flush=True)
        while broker.running:
            if signal.sigtimedwait(stops, 1):
                return 0
        raise EnvironmentProblem(f"The broker ended by itself. End of {broker.log}:\n{tail(broker.log)}")


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except EnvironmentProblem as problem:
        raise SystemExit(f"error: {problem}") from None
