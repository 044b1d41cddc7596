"""gRPC in front of the runtime: the Open Inference Protocol without MLServer's conversion to Python lists."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import DecodeError
from grpc.aio import ServerInterceptor, ServicerContext
from mlserver.grpc import dataplane_pb2 as pb
from mlserver.grpc.servicers import InferenceServicer
from mlserver.handlers import DataPlane, ModelRepositoryHandlers

from attention_cem.shipping.bundle import LOGITS, SERVER_HALF
from attention_cem.shipping.http_front import Answering
from attention_cem.shipping.microbatch import Overloaded
from attention_cem.shipping.request_checks import RequestError, RequestRules
from attention_cem.shipping.serve_settings import Token

_SERVICE = "/inference.GRPCInferenceService/"
_OPEN = {f"{_SERVICE}ServerLive", f"{_SERVICE}ServerReady"}
_OFFERED = _OPEN | {f"{_SERVICE}{name}" for name in ("ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")}
_log = logging.getLogger("attention_cem.serving")


class GrpcGuard(ServerInterceptor):
    """Lets only the offered methods pass, and all but health only with the token."""

    def __init__(self, token: Token | None) -> None:
        self._token = token

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Continue, or answer with an error."""
        method = handler_call_details.method
        if method not in _OPEN and self._token is not None:
            metadata = dict(handler_call_details.invocation_metadata or ())
            if not self._token.admits(metadata.get("authorization")):
                return _refusing(grpc.StatusCode.UNAUTHENTICATED, "a valid bearer token is needed")
        if method not in _OFFERED:
            return _refusing(grpc.StatusCode.UNIMPLEMENTED, "this method is not offered")
        return _parsing(await continuation(handler_call_details))


_UNREADABLE = object()


def _parsing(handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
    """The handler with an answer for bytes that are no message; gRPC's own names internals and logs a traceback."""

    def read(content: bytes) -> Any:
        try:
            return handler.request_deserializer(content)
        except DecodeError:
            return _UNREADABLE

    async def behave(request: Any, context: ServicerContext) -> Any:
        if request is _UNREADABLE:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the bytes are not a message of the protocol")
        return await handler.unary_unary(request, context)

    return grpc.unary_unary_rpc_method_handler(behave, read, handler.response_serializer)


def _refusing(code: grpc.StatusCode, message: str) -> Any:
    async def refuse(request: Any, context: ServicerContext) -> None:
        await context.abort(code, message)

    return grpc.unary_unary_rpc_method_handler(refuse)


class GrpcFront(InferenceServicer):
    """Answers inference from raw bytes; health and metadata are MLServer's.

    Args:
        data_plane: MLServer's.
        repository: MLServer's.
        rules: what requests must look like.
        runtime: gives the runtime once it is loaded, before that None.
        count: told the outcome of every inference.
    """

    def __init__(
        self,
        data_plane: DataPlane,
        repository: ModelRepositoryHandlers,
        rules: RequestRules,
        runtime: Callable[[], Answering | None],
        count: Callable[[str], None],
    ) -> None:
        super().__init__(data_plane, repository)
        self._rules = rules
        self._runtime = runtime
        self._count = count

    async def ServerReady(self, request: pb.ServerReadyRequest, context: ServicerContext) -> pb.ServerReadyResponse:
        """Whether requests are answered; MLServer's own says yes before the model is loaded."""
        return pb.ServerReadyResponse(ready=self._runtime() is not None)

    async def ModelReady(self, request: pb.ModelReadyRequest, context: ServicerContext) -> pb.ModelReadyResponse:
        """Whether the model is loaded."""
        await self._check_model(request.name, request.version, context)
        return pb.ModelReadyResponse(ready=self._runtime() is not None)

    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, context: ServicerContext
    ) -> pb.ModelMetadataResponse:
        """Names, types and shapes of the tensors."""
        await self._check_model(request.name, request.version, context)
        return await super().ModelMetadata(pb.ModelMetadataRequest(name=request.name), context)

    async def ModelInfer(self, request: pb.ModelInferRequest, context: ServicerContext) -> pb.ModelInferResponse:
        """Logits for one request."""
        try:
            answer = await self._infer(request)
            self._count("answered")
            return answer
        except RequestError as error:
            self._count("refused")
            missing = error.status == 404
            code = grpc.StatusCode.NOT_FOUND if missing else grpc.StatusCode.INVALID_ARGUMENT
            message = error.message
        except Overloaded:
            self._count("overloaded")
            code, message = grpc.StatusCode.UNAVAILABLE, "too many requests are waiting; come back later"
        except Exception as error:
            self._count("failed")
            _log.error("inference failed: %s", type(error).__name__)  # the text might hold features
            code, message = grpc.StatusCode.INTERNAL, "the request could not be answered"
        await context.abort(code, message)

    async def _infer(self, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
        rules = self._rules
        rules.check_model(request.model_name, request.model_version)
        rules.check_envelope(request.id, len(request.inputs), [output.name for output in request.outputs])
        if SERVER_HALF in request.parameters:
            rules.check_server_half(request.parameters[SERVER_HALF].string_param)
        tensor = request.inputs[0]
        shape = rules.check_tensor(tensor.name, tensor.datatype, list(tensor.shape))
        raw = request.raw_input_contents
        if len(raw) > 1 or (raw and tensor.HasField("contents")):
            raise RequestError(400, "give the values once: as raw contents or as fp32_contents")
        z = (
            rules.from_raw(raw[0], shape)
            if raw
            else rules.from_values(np.array(tensor.contents.fp32_contents, np.float32), shape)
        )
        runtime = self._runtime()
        if runtime is None:
            raise Overloaded
        logits = await runtime.infer(z)
        answer = pb.ModelInferResponse(model_name=rules.name, model_version="1", id=request.id)
        output = answer.outputs.add(name=LOGITS, datatype="FP32", shape=logits.shape)
        if raw:
            answer.raw_output_contents.append(np.ascontiguousarray(logits, "<f4").tobytes())
        else:
            output.contents.fp32_contents.extend(logits.ravel().tolist())
        return answer

    async def _check_model(self, name: str, version: str, context: ServicerContext) -> None:
        try:
            self._rules.check_model(name, version)
        except RequestError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, error.message)
