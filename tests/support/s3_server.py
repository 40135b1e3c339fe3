"""A real S3 server as a process of its own on loopback: s3proxy, which needs only Java and keeps put-if-absent atomic.

Fetched once with the Ivy that PySpark ships, into a folder beside Delta's jars; started and stopped by its id.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice.conf.jars import jars_folder, resolve_with_ivy_file
from tests.support.ports import free_ports

VERSION = "4.1.0"
READY_WITHIN_S = 90
_IVY = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="sluice" module="tests"/>
  <dependencies>
    <dependency org="org.gaul" name="s3proxy" rev="{VERSION}" transitive="false" conf="default->*">
      <artifact name="s3proxy" type="jar" ext="jar" m:classifier="jar-with-dependencies"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True)
class S3Server:
    endpoint: str
    port: int
    folder: Path

    @property
    def options(self) -> dict[str, str]:
        return self.options_at(self.endpoint)

    def options_at(self, endpoint: str) -> dict[str, str]:
        """The same server through another address, such as a proxy in front of it."""
        return {
            "endpoint": endpoint,
            "access_key_id": "tester",
            "secret_access_key": "testing-only",
            "region": "us-east-1",
            "allow_http": "true",
        }

    def bucket(self, name: str) -> str:
        """A bucket of s3proxy is a folder."""
        (self.folder / name).mkdir(exist_ok=True)
        return f"s3://{name}"


def _jar() -> Path:
    folder = jars_folder("", os.environ)
    jar = folder / f"s3proxy-{VERSION}.jar"
    if not jar.is_file():
        with tempfile.TemporaryDirectory() as scratch:
            resolve_with_ivy_file(_IVY, Path(scratch))
            folder.mkdir(parents=True, exist_ok=True)
            partial = folder / f".{jar.name}.{os.getpid()}"
            shutil.copy(Path(scratch) / jar.name, partial)
            partial.replace(jar)
    return jar


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    data, (port,) = folder / "buckets", free_ports(1)
    data.mkdir(parents=True, exist_ok=True)
    server = S3Server(f"http://127.0.0.1:{port}", port, data)
    properties = folder / "s3proxy.conf"
    properties.write_text(
        f"s3proxy.endpoint={server.endpoint}\n"
        "s3proxy.authorization=aws-v2-or-v4\n"
        f"s3proxy.identity={server.options['access_key_id']}\n"
        f"s3proxy.credential={server.options['secret_access_key']}\n"
        "jclouds.provider=filesystem-nio2\njclouds.identity=x\njclouds.credential=x\n"
        f"jclouds.filesystem.basedir={data}\n"
    )
    command = ["java", "-Xmx256m", "-DLOG_LEVEL=warn", "-cp", str(_jar()), "org.gaul.s3proxy.Main"]
    with (folder / "s3proxy.log").open("wb") as log:
        process = subprocess.Popen([*command, "--properties", str(properties)], stdout=log, stderr=log)
    try:
        _wait_for(port, process)
        yield server
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"s3proxy ended with {process.returncode}")
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"s3proxy did not listen within {READY_WITHIN_S} s")
