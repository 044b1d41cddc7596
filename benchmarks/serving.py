"""Many clients on one server, beside ONNX Runtime called directly, in one run; the server may be killed meanwhile.

python -m benchmarks.serving --clients 64 --seconds 60 --kill --out serving.json     # the full load
python -m benchmarks.serving --backbone tiny_cnn --clients 8 --seconds 5              # a small run anywhere

Client processes, server and the direct calls share the machine's cores; everything stays on loopback. Every answer is
compared with the one ONNX Runtime gives directly for the same feature.
"""

import argparse
import json
import multiprocessing
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from attention_cem.shipping.bundle import Bundle, open_bundle
from attention_cem.shipping.sessions import open_session
from attention_cem.shipping.transports import ServerUnreachableError, open_transport

FEATURES = 256
TOLERANCE = 1e-3


def exported(folder: Path, backbone: str) -> Bundle:
    import torch

    from attention_cem.defences import DefenceStack, GaussianNoise
    from attention_cem.shipping.export import Halves, export_bundle
    from attention_cem.splitting import build_split_model

    torch.manual_seed(0)
    model = build_split_model(backbone, 10, (3, 32, 32))
    classes = tuple(f"class {number}" for number in range(10))
    stack = DefenceStack([GaussianNoise(0.025)])
    return export_bundle(Halves(model, stack, (3, 32, 32), classes, {"benchmark": backbone}), folder, name="benchmark")


class Server:
    """The server in its own process, on free ports."""

    def __init__(self, bundle: Bundle, threads: int) -> None:
        with socket.socket() as one, socket.socket() as two, socket.socket() as three:
            for each in (one, two, three):
                each.bind(("127.0.0.1", 0))
            self.http, self.grpc, self.metrics = (each.getsockname()[1] for each in (one, two, three))
        ports = ["--http-port", str(self.http), "--grpc-port", str(self.grpc), "--metrics-port", str(self.metrics)]
        self.command = [sys.executable, "-m", "attention_cem.cli.main", "serve", str(bundle.folder), *ports]
        self.command += ["--threads", str(threads)]

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up and self.process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.grpc), timeout=1):
                    pass
                if "attention_cem_batch_samples_count" in self.scraped():
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise RuntimeError("the server did not start")

    def kill(self, how: int = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.wait(30)

    def scraped(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def mean_batch(self) -> float:
        values = dict(line.rsplit(" ", 1) for line in self.scraped().splitlines() if not line.startswith("#"))
        count = float(values["attention_cem_batch_samples_count"])
        return float(values["attention_cem_batch_samples_sum"]) / max(count, 1.0)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def client_process(
    folder: str, address: str, clients: int, seconds: float, batch: int, first: int, queue: "multiprocessing.Queue[Any]"
) -> None:
    """Some of the clients, as threads of one process; each asks, waits for the answer, compares, asks again."""
    inputs = np.load(f"{folder}/z.npy")
    expected = np.load(f"{folder}/logits.npy")
    transports = [open_transport(address) for _ in range(clients)]
    reports: list[dict[str, Any]] = [{} for _ in range(clients)]
    end = time.monotonic() + seconds

    def load(number: int) -> None:
        random = np.random.default_rng(first + number)
        latencies, wrong, retries, errors, answered = [], 0, 0, 0, 0
        while time.monotonic() < end:
            rows = random.integers(0, FEATURES, batch)
            identifier, begin = str(uuid.uuid4()), time.perf_counter()
            for attempt in range(200):
                try:
                    logits = transports[number].infer("benchmark", inputs[rows], identifier, 30.0)
                    break
                except ServerUnreachableError:
                    retries += 1
                    time.sleep(min(0.1 * 2**attempt, 1.0))
            else:
                errors += 1
                continue
            latencies.append(time.perf_counter() - begin)
            answered += 1
            wrong += not np.allclose(logits, expected[rows], rtol=TOLERANCE, atol=TOLERANCE)
        reports[number] = {
            "latencies": latencies,
            "wrong": wrong,
            "retries": retries,
            "errors": errors,
            "answered": answered,
        }

    threads = [threading.Thread(target=load, args=(number,)) for number in range(clients)]
    began, started = time.process_time(), time.monotonic()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    # Requests under way at the end are finished and counted, and so is the time they took.
    queue.put((reports, time.process_time() - began, time.monotonic() - started))


def under_load(
    server: Server, folder: Path, options: argparse.Namespace, meanwhile: Callable[[], None] | None = None
) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue[Any] = context.Queue()
    share = [options.clients // options.processes] * options.processes
    share[0] += options.clients - sum(share)
    workers = [
        context.Process(
            target=client_process,
            args=(
                str(folder),
                f"grpc://127.0.0.1:{server.grpc}",
                count,
                options.seconds,
                options.batch,
                1000 * n,
                queue,
            ),
        )
        for n, count in enumerate(share)
    ]
    cpu = server.cpu_seconds()
    for each in workers:
        each.start()
    if meanwhile is not None:
        meanwhile()
    collected = [queue.get(timeout=options.seconds + 300) for _ in workers]
    for each in workers:
        each.join(60)
    reports = [report for process, _, _ in collected for report in process]
    latencies = sorted(value for report in reports for value in report["latencies"])
    answered = sum(report["answered"] for report in reports)
    return {
        "requests": answered,
        "images_per_s": answered * options.batch / max(elapsed for _, _, elapsed in collected),
        "p50_ms": 1000 * statistics.median(latencies),
        "p99_ms": 1000 * latencies[int(0.99 * (len(latencies) - 1))],
        "errors": sum(report["errors"] for report in reports),
        "wrong": sum(report["wrong"] for report in reports),
        "retries": sum(report["retries"] for report in reports),
        "server_cpu_s": server.cpu_seconds() - cpu if meanwhile is None else None,
        "client_cpu_s": sum(used for _, used, _ in collected),
        "mean_batch": server.mean_batch(),
    }


def direct(bundle: Bundle, inputs: np.ndarray, batch: int, seconds: float, threads: int) -> float:
    """Images per second of ONNX Runtime alone, called in a loop with ``batch`` images."""
    session = open_session(bundle.server_path, threads)
    session.run(None, {"z": inputs[:batch]})
    done, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        session.run(None, {"z": inputs[:batch]})
        done += batch
    return done / seconds


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    bundle = open_bundle(exported(folder / "bundle", options.backbone).folder)
    inputs = np.random.default_rng(0).random((FEATURES, *bundle.z_shape), dtype=np.float32)
    np.save(folder / "z.npy", inputs)
    np.save(folder / "logits.npy", open_session(bundle.server_path, 1).run(None, {"z": inputs})[0])
    # Direct calls before and after the load: on a shared machine the two tell how steady it was.
    sizes = {"one_request": options.batch, "full_batch": 64}
    before = {
        name: direct(bundle, inputs, size, options.direct_seconds, options.threads) for name, size in sizes.items()
    }
    server = Server(bundle, options.threads)
    server.start()
    try:
        steady = under_load(server, folder, options)
        killed = None
        if options.kill:

            def kill_and_restart() -> None:
                time.sleep(options.seconds / 3)
                server.kill()
                time.sleep(1.0)
                server.start()

            killed = under_load(server, folder, options, kill_and_restart)
    finally:
        server.kill()
    after = {
        name: direct(bundle, inputs, size, options.direct_seconds, options.threads) for name, size in sizes.items()
    }
    alone = {name: (before[name] + after[name]) / 2 for name in sizes}
    return {
        "machine": {"cores": os.cpu_count(), "onnxruntime_threads": options.threads},
        "setting": {name: getattr(options, name) for name in ("backbone", "clients", "seconds", "batch", "processes")},
        "direct_images_per_s": {"before": before, "after": after, "mean": alone},
        "load": steady,
        "load_with_kill": killed,
        "ratio_to_direct": {name: steady["images_per_s"] / value for name, value in alone.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="vgg11_bn")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--processes", type=int, default=1, help="processes that the clients share")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--direct-seconds", type=float, default=5.0)
    parser.add_argument("--batch", type=int, default=8, help="images in a request")
    parser.add_argument("--threads", type=int, default=0, help="threads of ONNX Runtime; 0 takes every core")
    parser.add_argument(
        "--kill", action="store_true", help="a second load, in which the server is killed and restarted"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options, Path(folder))
    text = json.dumps(result, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
