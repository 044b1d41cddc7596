"""A real server in its own process: MLServer and NVIDIA's client cannot be imported into one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LOG_LIMIT = 100_000


@dataclass
class RunningServer:
    """A server process and its addresses."""

    command: list[str]
    http_port: int
    grpc_port: int
    metrics_port: int
    log: Path
    host: str = "127.0.0.1"
    process: subprocess.Popen[bytes] | None = None

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.http_port}"

    def start(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=environment)
        give_up = time.monotonic() + 60
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > give_up:
                self.kill()
                raise AssertionError(f"the server did not start: {self.text()}")
            time.sleep(0.05)

    def kill(self, how: int = signal.SIGKILL) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(timeout=30)

    def text(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_LIMIT:]

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def resident_bytes(self) -> int:
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _ready(self) -> bool:
        # Ready is asked over gRPC's port too: HTTP may be up first.
        try:
            with socket.create_connection((self.host, self.grpc_port), timeout=1):
                pass
            text = self.metrics()
        except OSError:
            return False
        return "attention_cem_batch_samples" in text


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def serving(bundle: Path, *options: str, host: str = "127.0.0.1") -> Iterator[RunningServer]:
    """Serve a bundle on free loopback ports until the block ends."""
    http_port, grpc_port, metrics_port = free_ports(3)
    ports = ["--http-port", str(http_port), "--grpc-port", str(grpc_port), "--metrics-port", str(metrics_port)]
    command = [sys.executable, "-m", "attention_cem.cli.main", "serve", str(bundle), "--host", host, *ports, *options]
    with tempfile.TemporaryDirectory() as folder:
        server = RunningServer(command, http_port, grpc_port, metrics_port, Path(folder) / "log", host)
        server.start()
        try:
            yield server
        finally:
            server.kill()
