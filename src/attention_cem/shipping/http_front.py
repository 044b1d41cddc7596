"""HTTP in front of MLServer's application: who may ask, what may be asked, and what an error may say."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attention_cem.shipping.bundle import LOGITS
from attention_cem.shipping.microbatch import Overloaded
from attention_cem.shipping.request_checks import RequestError, RequestRules
from attention_cem.shipping.serve_settings import Token

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEALTH = re.compile(r"/v2/health/(live|ready)")
_SERVER = re.compile(r"/v2")
_MODEL = re.compile(r"/v2/models/([^/]{1,200})(?:/versions/([^/]{1,50}))?(/ready|/infer)?")
_SLOWEST_BODY = 30.0
_log = logging.getLogger("attention_cem.serving")


class Answering(Protocol):
    """What the front end needs of the runtime."""

    async def infer(self, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits for features."""
        ...


class HttpFront:
    """An ASGI application around MLServer's.

    Inference is answered here, straight from the checked body; health and metadata are MLServer's. Everything else
    MLServer offers (loading and unloading models, streams, documentation) does not exist for the outside. Answers of
    MLServer that are errors lose their text, because it may repeat the request or name internals.

    Args:
        inner: MLServer's application.
        rules: what requests must look like.
        runtime: gives the runtime once it is loaded, before that None.
        token: that every request but those for health must carry; None on loopback without one.
        count: told the outcome of every inference.
    """

    def __init__(
        self,
        inner: Application,
        rules: RequestRules,
        runtime: Callable[[], Answering | None],
        token: Token | None,
        count: Callable[[str], None],
    ) -> None:
        self._inner = inner
        self._rules = rules
        self._runtime = runtime
        self._token = token
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            infers = self._route(scope)
            if infers:
                await _answer(send, 200, await self._infer(scope, receive))
                self._count("answered")
            else:
                await self._inner(scope, _no_body, _without_error_text(send))
        except RequestError as error:
            self._count("refused")
            await _answer(send, error.status, {"error": error.message})
        except Overloaded:
            self._count("overloaded")
            await _answer(send, 429, {"error": "too many requests are waiting; come back later"}, {"retry-after": "1"})
        except ConnectionResetError:
            self._count("abandoned")
        except Exception as error:
            self._count("failed")
            _log.error("inference failed: %s", type(error).__name__)  # the text might hold features
            await _answer(send, 500, {"error": "the request could not be answered"})

    def _route(self, scope: Scope) -> bool:
        """Whether this is an inference; refuses whatever is neither that nor health nor metadata."""
        path, method = scope["path"], scope["method"]
        health, model = _HEALTH.fullmatch(path), _MODEL.fullmatch(path)
        if health is None and self._token is not None and not self._token.admits(_header(scope, b"authorization")):
            raise RequestError(401, "a valid bearer token is needed")
        if health is None and model is None and _SERVER.fullmatch(path) is None:
            raise RequestError(404, "there is nothing here")
        infers = model is not None and model[3] == "/infer"
        if method != ("POST" if infers else "GET"):
            raise RequestError(405, f"use {'POST' if infers else 'GET'} here")
        if path.endswith("/ready") and self._runtime() is None:
            raise RequestError(503, "the model is not loaded yet")
        if model is not None:
            self._rules.check_model(model[1], model[2])
            scope["path"] = f"/v2/models/{model[1]}{model[3] or ''}"
        return infers

    async def _infer(self, scope: Scope, receive: Receive) -> dict[str, Any]:
        if (_header(scope, b"content-encoding") or b"identity").lower() != b"identity":
            raise RequestError(415, "compressed bodies are not read")
        if _header(scope, b"inference-header-content-length") is not None:
            raise RequestError(415, "the binary tensor extension is not spoken over HTTP; use JSON tensors or gRPC")
        try:
            async with asyncio.timeout(_SLOWEST_BODY):
                body = await self._body(scope, receive)
        except TimeoutError:
            raise RequestError(408, "the body took too long") from None
        try:
            parsed = json.loads(body)
        except (ValueError, RecursionError):
            raise RequestError(400, "the body must be JSON") from None
        identifier, z = self._rules.from_json(parsed)
        runtime = self._runtime()
        if runtime is None:
            raise Overloaded
        logits = await runtime.infer(z)
        output = {"name": LOGITS, "datatype": "FP32", "shape": list(logits.shape), "data": logits.ravel().tolist()}
        answer: dict[str, Any] = {"model_name": self._rules.name, "model_version": "1", "outputs": [output]}
        return answer if identifier is None else {**answer, "id": identifier}

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        largest = self._rules.largest_json
        announced = _header(scope, b"content-length")
        too_long = RequestError(413, f"the body may have at most {largest} bytes")
        if announced is not None and (not announced.isdigit() or int(announced) > largest):
            raise too_long
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError
            part = message.get("body", b"")
            size += len(part)
            if size > largest:
                raise too_long
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key.lower() == name), None)


async def _no_body() -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _answer(send: Send, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
    body = json.dumps(content, allow_nan=False).encode()
    listed = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    if status == 401:
        listed["www-authenticate"] = "Bearer"
    encoded = [(key.encode(), value.encode()) for key, value in listed.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def _without_error_text(send: Send) -> Send:
    failed = False

    async def guarded(message: MutableMapping[str, Any]) -> None:
        nonlocal failed
        if message["type"] == "http.response.start" and message["status"] >= 400:
            failed = True
            await _answer(send, message["status"], {"error": "not available"})
        elif not failed:
            await send(message)

    return guarded
