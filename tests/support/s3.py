"""S3 servers on this machine, with a bucket for each test."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import boto3
import pytest
from tests.support.servers import ACCESS_KEY, REGION, SECRET_KEY, reserved_port, s3_environment

from lakebackup.storage import open_storage
from lakebackup_jobs.runtime.child import Child, tail
from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.java.jars import cache_folder, class_path


class Server:
    """An S3 server in a folder. As a context manager it runs inside the block."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        self.port = port or reserved_port()
        self.log = folder / "server.log"
        self.trusted: str | None = None  # the file of its certificate, if it has one
        self._plain: Any = None
        self._child: Child | None = None

    @property
    def endpoint(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which any S3 client finds the server, and none of this machine's own account."""
        return s3_environment(self.endpoint)

    def client(self) -> Any:
        """A client by boto3, to look at objects without the code under test."""
        if self._plain is None:
            self._plain = boto3.client(
                "s3",
                endpoint_url=self.endpoint,
                region_name=REGION,
                aws_access_key_id=ACCESS_KEY,
                aws_secret_access_key=SECRET_KEY,
                verify=self.trusted,
            )
        return self._plain

    def bucket(self, **options: Any) -> str:
        """Create a bucket; returns its name."""
        name = f"bucket-{uuid4().hex[:12]}"
        configuration = {"LocationConstraint": REGION}
        self.client().create_bucket(Bucket=name, CreateBucketConfiguration=configuration, **options)
        return name

    @property
    def running(self) -> bool:
        """Whether the server's process is alive."""
        return self._child is not None and self._child.running

    def start(self, seconds: float = 60) -> Self:
        """Start the server and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command, env = self._command()
        self._child = Child(command, self.log, env=env)
        deadline = time.monotonic() + seconds
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the S3 server did not start:\n{tail(self.log)}")
            time.sleep(0.05)
        if not self.running:  # then the server of another process answered
            raise RuntimeError(f"the S3 server did not start:\n{tail(self.log)}")
        return self

    def kill(self) -> None:
        """Kill the server (SIGKILL)."""
        if self._child:
            self._child.kill()
            self._child = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(5)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _command(self) -> tuple[list[str], dict[str, str] | None]:
        raise NotImplementedError


class S3Proxy(Server):
    """S3Proxy on a folder: conditional puts as in S3, no versions and no locks."""

    AUTHORIZATION = f"aws-v2-or-v4\ns3proxy.identity={ACCESS_KEY}\ns3proxy.credential={SECRET_KEY}"

    def _command(self) -> tuple[list[str], None]:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        settings = self.folder / "s3proxy.properties"
        settings.write_text(
            f"{self._listener()}"
            f"s3proxy.authorization={self.AUTHORIZATION}\n"
            f"jclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={data}\n",
            "utf-8",
        )
        return [
            str(java_home() / "bin" / "java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", class_path("s3proxy"), "org.gaul.s3proxy.Main", "--properties", str(settings),
        ], None  # fmt: skip

    def _listener(self) -> str:
        return f"s3proxy.endpoint={self.endpoint}\n"


class OpenS3Proxy(S3Proxy):
    """S3Proxy without a check of signatures, so that a proxy before it may change a request."""

    AUTHORIZATION = "none"


class SecureS3Proxy(S3Proxy):
    """S3Proxy with TLS. `certificate` is the file that its clients must trust."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.certificate = folder / "ca.pem"
        self.trusted = str(self.certificate)

    @property
    def endpoint(self) -> str:
        """The server's URL."""
        return f"https://127.0.0.1:{self.port}"

    def _listener(self) -> str:
        store, password = self.folder / "server.p12", "changeit"
        tool = [str(java_home() / "bin" / "keytool"), "-storepass", password, "-keystore", str(store)]
        names = ["-alias", "server", "-storetype", "PKCS12"]
        subject = ["-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-validity", "2", "-keyalg", "RSA"]
        subprocess.run([*tool, "-genkeypair", *names, *subject], check=True, capture_output=True)
        certificate = subprocess.run([*tool, "-exportcert", "-rfc", *names], check=True, capture_output=True)
        self.certificate.write_bytes(certificate.stdout)
        return (
            f"s3proxy.secure-endpoint={self.endpoint}\n"
            f"s3proxy.keystore-path={store}\ns3proxy.keystore-password={password}\n"
        )


class Versity(Server):
    """versitygw on a folder: it has versions and Object Lock too."""

    VERSION = "v1.8.0"

    def _command(self) -> tuple[list[str], dict[str, str]]:
        data, versions = self.folder / "data", self.folder / "versions"
        for folder in (data, versions):
            folder.mkdir(exist_ok=True)
        credentials = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        return [
            str(self.program()), "--port", f"127.0.0.1:{self.port}", "--region", REGION, "--keep-alive",
            "posix", "--versioning-dir", str(versions), str(data),
        ], {**os.environ, **credentials}  # fmt: skip

    @classmethod
    def program(cls) -> Path:
        """The path of the server, which Go builds once into the cache. Skips the test if Go cannot."""
        program = cache_folder() / f"versitygw-{cls.VERSION}" / "versitygw"
        if not program.exists():
            go_program = shutil.which("go")
            if not go_program:
                pytest.skip("no Go here to build versitygw with")
            program.parent.mkdir(parents=True, exist_ok=True)
            with (program.parent / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # other processes of this run wait, and find it built
                if not program.exists():
                    cls._build(go_program, program)
        return program

    @classmethod
    def _build(cls, go_program: str, program: Path) -> None:
        work = program.parent / "work"
        result = subprocess.run(
            [go_program, "install", f"github.com/versity/versitygw/cmd/versitygw@{cls.VERSION}"],
            env={**os.environ, "GOBIN": str(work)},
            check=False, capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        if result.returncode:  # the usual reason is that there is no network
            pytest.skip(
                f"versitygw cannot be built: {(result.stderr.strip() or 'no reason').splitlines()[-1]}"
            )
        (work / program.name).replace(program)


def put_catalog(uri: str, empty_catalog: Path) -> str:
    """Copy a catalog without rows to a destination, since Spark takes long to make one; returns the URI."""
    storage = open_storage(uri)
    for file in empty_catalog.rglob("*"):
        if file.is_file() and not file.name.startswith("."):
            storage.put(f"catalog/{file.relative_to(empty_catalog)}", file.read_bytes())
    return uri
