"""``serve``: MLServer with our runtime behind front ends that check everything."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import grpc
import uvicorn
from grpc import aio
from mlserver import MLServer, ModelSettings, Settings
from mlserver.grpc import GRPCServer
from mlserver.grpc.dataplane_pb2_grpc import add_GRPCInferenceServiceServicer_to_server
from mlserver.metrics import MetricsServer
from mlserver.rest import RESTServer

import attention_cem
from attention_cem.shipping.bundle import Bundle, open_bundle
from attention_cem.shipping.grpc_front import GrpcFront, GrpcGuard
from attention_cem.shipping.http_front import HttpFront
from attention_cem.shipping.runtime import BundleRuntime, answered_requests, open_server, rules_of
from attention_cem.shipping.serve_settings import METRICS_HOST, ServeSettings, Token, check_settings, network_address
from attention_cem.shipping.serving_files import model_settings

RuntimeOrNone = Callable[[], BundleRuntime | None]


def serve(folder: str | os.PathLike[str], settings: ServeSettings | None = None) -> None:
    """Serve a bundle's server half over HTTP and gRPC until SIGTERM or Ctrl-C.

    Args:
        folder: the bundle.
        settings: where to listen, and the limits.

    Raises:
        BundleError: the bundle is incomplete or was altered.
        UnsafeServerError: listening beyond loopback without token and TLS, or settings that cannot work.
        ValueError: the server half cannot be loaded.
    """
    chosen = settings or ServeSettings()
    token = check_settings(chosen)
    bundle = open_bundle(folder)
    # Tried before there are ports: MLServer would open them, print a traceback and end as if all were well.
    open_server(bundle, chosen.threads)
    asyncio.run(_serve(bundle, chosen, token))


async def _serve(bundle: Bundle, settings: ServeSettings, token: Token | None) -> None:
    BundleRuntime.limits = settings
    server = GuardedServer(bundle, settings, token)
    described = model_settings(bundle.name, str(bundle.folder.resolve()), bundle.z_shape, len(bundle.class_names))
    await server.start([ModelSettings.model_validate(described)])
    if server.runtime() is None:
        raise ValueError(f"{bundle.server_path} was not loaded; the log above says why")


class GuardedServer(MLServer):
    """MLServer whose HTTP, gRPC and metrics servers are ours."""

    def __init__(self, bundle: Bundle, settings: ServeSettings, token: Token | None) -> None:
        self._bundle = bundle
        self._chosen = settings
        self._token = token
        self._registered: BundleRuntime | None = None
        super().__init__(
            Settings(
                host=settings.host,
                http_port=settings.http_port,
                grpc_port=settings.grpc_port,
                metrics_port=settings.metrics_port,
                server_name="attention-cem",
                server_version=attention_cem.__version__,
                parallel_workers=0,
                debug=False,
                gzip_enabled=False,
                load_models_at_startup=False,
                model_repository_root=str(bundle.folder),
            )
        )
        self._metrics_server = LoopbackMetrics(self._settings)

    async def add_custom_handlers(self, model: BundleRuntime) -> BundleRuntime:
        """Called by MLServer before it loads the runtime."""
        self._registered = model
        return model

    def _create_servers(self) -> None:
        rules = rules_of(self._bundle, self._chosen.max_samples)
        common = (self._settings, self._data_plane, self._model_repository_handlers)
        counters = answered_requests()
        self._rest_server = GuardedHttp(*common)
        self._rest_server.guard(
            self._chosen, lambda inner: HttpFront(inner, rules, self.runtime, self._token, _counting(counters, "http"))
        )
        front = GrpcFront(*common[1:], rules, self.runtime, _counting(counters, "grpc"))
        self._grpc_server = GuardedGrpc(*common)
        self._grpc_server.guard(self._chosen, front, GrpcGuard(self._token), rules.largest_message)
        self._kafka_server = None

    def runtime(self) -> BundleRuntime | None:
        """The runtime once it is loaded: from then on requests are answered."""
        return self._registered if self._registered is not None and self._registered.ready else None


def _counting(counter: Any, transport: str) -> Callable[[str], None]:
    def count(outcome: str) -> None:
        counter.labels(transport=transport, outcome=outcome).inc()

    return count


class GuardedHttp(RESTServer):
    """MLServer's HTTP server with our front end and TLS."""

    def guard(self, settings: ServeSettings, front: Callable[[Any], HttpFront]) -> None:
        """Say what stands in front, and how connections are encrypted."""
        self._chosen = settings
        self._front = front(self._app)

    def _get_config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._front,
            host=self._chosen.host,
            port=self._chosen.http_port,
            access_log=False,
            server_header=False,
            log_level="warning",
            lifespan="off",  # nothing needs it, and at Ctrl-C its task would end in a traceback
            timeout_keep_alive=30,
            ssl_certfile=self._chosen.certificate,
            ssl_keyfile=self._chosen.key,
        )


class GuardedGrpc(GRPCServer):
    """A gRPC server with our servicer, our guard and TLS; without MLServer's repository service."""

    def guard(self, settings: ServeSettings, front: GrpcFront, guard: GrpcGuard, largest_message: int) -> None:
        """Say what answers, what stands in front, and how connections are encrypted."""
        self._chosen = settings
        self._front = front
        self._guard = guard
        self._largest_message = largest_message

    def _create_server(self) -> aio.Server:
        options = [
            ("grpc.max_receive_message_length", self._largest_message),
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", 1024),
        ]
        self._server = aio.server(interceptors=[self._guard], options=options)
        add_GRPCInferenceServiceServicer_to_server(self._front, self._server)
        address = network_address(self._chosen.host, self._chosen.grpc_port)
        if self._chosen.certificate is not None and self._chosen.key is not None:
            pair = (self._chosen.key.read_bytes(), self._chosen.certificate.read_bytes())
            self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            self._server.add_insecure_port(address)
        return self._server


class LoopbackMetrics(MetricsServer):
    """Prometheus metrics that only this machine can read: they carry no token."""

    def _get_config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._app,
            host=METRICS_HOST,
            port=self._settings.metrics_port,
            access_log=False,
            server_header=False,
            log_level="warning",
            lifespan="off",  # nothing needs it, and at Ctrl-C its task would end in a traceback
        )
