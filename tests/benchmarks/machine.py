"""Describes the machine and the software that the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import confluent_kafka
import psutil
from tests.benchmarks import peers

from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.java.jars import pinned


def describe(folder: Path) -> str:
    """Return a Markdown list: processor, memory, the disk of `folder`, and the versions of all software."""
    jars = {jar.name: jar.version for jar in [*pinned("spark"), *pinned("kafka")]}
    lines = {
        "Processor": f"{_processor()}, {os.cpu_count()} CPUs seen",
        "Memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "Disk": _disk(folder),
        "System": f"Linux {platform.release()}, Python {platform.python_version()}, Java {_java()}",
        "Versions": f"PySpark {version('pyspark')}, Delta {jars['delta-spark_4.2_2.13']}, "
        f"librdkafka {confluent_kafka.libversion()[0]}, fastavro {version('fastavro')}, "
        f"broker Apache Kafka {jars['kafka_2.13']} (one node, 256 MB heap, same machine)",
        "Peers": peers.versions(),
        "Load before": f"{os.getloadavg()[0]:.2f} (average of one minute)",
    }
    return "\n".join(f"- {name}: {value}" for name, value in lines.items())


def _processor() -> str:
    match = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text("utf-8"))
    return match.group(1) if match else platform.machine()


def _disk(folder: Path) -> str:
    mounts = [p for p in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(p.mountpoint)]
    return max(mounts, key=lambda p: len(p.mountpoint)).fstype if mounts else "unknown"


def _java() -> str:
    command = [str(java_home() / "bin" / "java"), "-version"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    match = re.search(r'"([^"]+)"', result.stderr)
    return match.group(1) if match else "unknown"
