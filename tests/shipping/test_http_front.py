"""The HTTP front end alone: what a healthy server seldom shows."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from attention_cem.shipping.http_front import HttpFront
from attention_cem.shipping.microbatch import Overloaded
from attention_cem.shipping.request_checks import RequestRules

RULES = RequestRules("shapes", (2,), 3, 4)
GOOD = {"inputs": [{"name": "z", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 0.5]}]}


class Runtime:
    def __init__(self, error=None, value=0.0):
        self.error, self.value = error, value

    async def infer(self, z):
        if self.error is not None:
            raise self.error
        return np.full((len(z), 3), self.value, np.float32)


async def leaky(scope, receive, send):
    await send({"type": "http.response.start", "status": 500, "headers": []})
    await send({"type": "http.response.body", "body": b"secret traceback"})


def ask(method, path, body=b"", *, runtime=None, inner=leaky, receive=None):
    """Status, content and the outcomes counted."""
    sent, counted = [], []

    async def whole():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    front = HttpFront(inner, RULES, lambda: runtime, None, counted.append)
    scope = {"type": "http", "path": path, "method": method, "headers": []}
    asyncio.run(front(scope, receive or whole, send))
    if not sent:
        return None, b"", counted
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent), counted


@pytest.mark.parametrize("path", ["/v2/health/ready", "/v2/models/shapes/ready"])
def test_http_front__is_not_ready_before_the_model_is_loaded(path):
    status, content, _ = ask("GET", path)
    assert status == 503 and b"not loaded yet" in content


def test_http_front__infer_before_the_model_is_loaded_is_told_to_come_back():
    assert ask("POST", "/v2/models/shapes/infer", json.dumps(GOOD).encode())[0] == 429


def test_http_front__errors_of_the_inner_server_lose_their_text():
    status, content, _ = ask("GET", "/v2", runtime=Runtime())
    assert status == 500 and b"secret" not in content


@pytest.mark.parametrize(
    ("error", "status", "outcome"),
    [(RuntimeError("secret 0.5"), 500, "failed"), (Overloaded(), 429, "overloaded"), (None, 200, "answered")],
)
def test_http_front__failures_are_counted_and_never_explained(error, status, outcome, caplog):
    found, content, counted = ask("POST", "/v2/models/shapes/infer", json.dumps(GOOD).encode(), runtime=Runtime(error))
    assert (found, counted) == (status, [outcome])
    assert b"secret" not in content and "secret" not in caplog.text


def test_http_front__an_answer_is_json_or_an_error():
    runtime = Runtime(value=np.nan)
    status, content, counted = ask("POST", "/v2/models/shapes/infer", json.dumps(GOOD).encode(), runtime=runtime)
    assert (status, counted) == (500, ["failed"]) and b"NaN" not in content


def test_http_front__a_body_that_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr("attention_cem.shipping.http_front._SLOWEST_BODY", 0.05)

    async def stalled():
        await asyncio.sleep(60)

    status, content, _ = ask("POST", "/v2/models/shapes/infer", runtime=Runtime(), receive=stalled)
    assert status == 408 and b"too long" in content


def test_http_front__a_client_that_hangs_up_gets_nothing():
    async def gone():
        return {"type": "http.disconnect"}

    assert ask("POST", "/v2/models/shapes/infer", runtime=Runtime(), receive=gone) == (None, b"", ["abandoned"])


def test_http_front__web_sockets_are_closed():
    sent = []

    async def send(message):
        sent.append(message)

    front = HttpFront(leaky, RULES, Runtime, None, print)
    asyncio.run(front({"type": "websocket"}, send, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
