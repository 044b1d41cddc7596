"""Whatever strangers send: no 5xx, no crash, memory flat.

``ATTENTION_CEM_FUZZ_REQUESTS=10000`` sets the number of requests of all three fuzzers together.
"""

from __future__ import annotations

import json
import os
import struct

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.shipping.conftest import needs_mlserver
from tests.shipping.serving import serving

grpc = pytest.importorskip("grpc")
schemathesis = pytest.importorskip("schemathesis")

REQUESTS = int(os.environ.get("ATTENTION_CEM_FUZZ_REQUESTS", "240"))
GROWTH = 48 * 2**20
"""Bytes the process may grow by after the warm-up: buffers of the allocator, not something kept per request."""

few = settings(
    max_examples=REQUESTS // 3,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=20,
)
almost_tensors = st.fixed_dictionaries(
    {
        "name": st.just("z") | json_values,
        "datatype": st.sampled_from(["FP32", "FP64", "BYTES", "fp32"]) | json_values,
        "shape": st.just([1, 2, 4, 4]) | st.lists(st.integers(-(2**70), 2**70), max_size=6) | json_values,
        "data": st.lists(st.floats(width=32) | st.integers(), min_size=32, max_size=32) | json_values,
    },
    optional={"parameters": json_values},
)
bodies = st.fixed_dictionaries(
    {"inputs": st.lists(almost_tensors, min_size=1, max_size=2) | json_values},
    optional={"id": st.text(max_size=200) | json_values, "outputs": json_values, "parameters": json_values},
)


def open_api(z_shape):
    """The requests of the Open Inference Protocol that the server answers, as an OpenAPI document."""
    values = 1
    for side in z_shape:
        values *= side
    numbers = {"type": "array", "items": {"type": "number"}, "minItems": values, "maxItems": values}
    tensor = {
        "type": "object",
        "required": ["name", "datatype", "shape", "data"],
        "properties": {
            "name": {"type": "string", "enum": ["z"]},
            "datatype": {"type": "string", "enum": ["FP32"]},
            "shape": {"type": "array", "items": {"type": "integer"}, "enum": [[1, *z_shape]]},
            "data": numbers,
        },
    }
    body = {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string", "maxLength": 64},
            "inputs": {"type": "array", "items": tensor, "minItems": 1, "maxItems": 1},
        },
    }
    answers = {"200": {"description": "an answer"}, "4XX": {"description": "a refusal"}}
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    return {
        "openapi": "3.0.3",
        "info": {"title": "server half", "version": "2"},
        "paths": {
            "/v2/health/ready": {"get": {"responses": answers}},
            "/v2": {"get": {"responses": answers}},
            "/v2/models/{name}": {"get": {"parameters": [name], "responses": answers}},
            "/v2/models/{name}/ready": {"get": {"parameters": [name], "responses": answers}},
            "/v2/models/shapes/infer": {
                "post": {
                    "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
                    "responses": answers,
                }
            },
        },
    }


@pytest.fixture(scope="module")
def fuzzed(bundle):
    """A server of its own, which must be the same process, answering and no larger when all fuzzers are done."""
    needs_mlserver()
    with serving(bundle.folder) as running:
        session = requests.Session()
        good = {"name": "z", "datatype": "FP32", "shape": [1, 2, 4, 4], "data": [0.5] * 32}
        url = f"http://{running.http}/v2/models/shapes/infer"
        for _ in range(200):
            assert session.post(url, json={"inputs": [good]}, timeout=20).status_code == 200
        before = running.resident_bytes()
        yield running
        assert session.post(url, json={"inputs": [good]}, timeout=20).status_code == 200
        assert running.process.poll() is None
        grown = running.resident_bytes() - before
        print(f"\nfuzz: {REQUESTS} requests, the server grew by {grown / 2**20:.1f} MiB")
        assert grown < GROWTH
        assert "Traceback" not in running.text()
        assert 'outcome="failed"' not in running.metrics()


def test_fuzz__any_json_over_http(fuzzed):
    url = f"http://{fuzzed.http}/v2/models/shapes/infer"
    with requests.Session() as session:

        @few
        @given(body=bodies | json_values)
        def fuzz(body):
            answer = session.post(url, data=json.dumps(body).encode(), timeout=20)
            assert answer.status_code == 200 or 400 <= answer.status_code < 500
            assert answer.status_code == 200 or set(answer.json()) == {"error"}

        fuzz()


def test_fuzz__schema_based_over_http(fuzzed, bundle):
    schema = schemathesis.openapi.from_dict(open_api(bundle.z_shape))
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    operations = [result.ok() for result in schema.get_all_operations()]
    cases = st.one_of(
        [each.as_strategy(generation_mode=mode) for each in operations for mode in modes if each.method == "post"]
        + [each.as_strategy() for each in operations]
    )
    with requests.Session() as session:

        @few
        @given(case=cases)
        def fuzz(case):
            answer = case.call(base_url=f"http://{fuzzed.http}", session=session, timeout=20)
            assert answer.status_code < 500

        fuzz()


def test_fuzz__any_bytes_over_grpc(fuzzed):
    from tritonclient.grpc import service_pb2

    allowed = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}

    def well_formed(name, shape, values, raw, extra):
        request = service_pb2.ModelInferRequest(model_name=name, id=extra)
        given = request.inputs.add(name="z", datatype="FP32", shape=shape)
        if raw:
            request.raw_input_contents.append(struct.pack(f"<{len(values)}f", *values))
        else:
            given.contents.fp32_contents.extend(values)
        return request.SerializeToString()

    messages = st.builds(
        well_formed,
        st.just("shapes") | st.text(max_size=10),
        st.just([1, 2, 4, 4]) | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
        st.lists(st.floats(width=32), min_size=32, max_size=32) | st.lists(st.floats(width=32), max_size=8),
        st.booleans(),
        st.text(max_size=150),
    )
    with grpc.insecure_channel(fuzzed.grpc) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

        @few
        @given(message=messages | st.binary(max_size=300))
        def fuzz(message):
            answer = call.future(message, timeout=20)
            assert answer.code() in allowed, answer.details()

        fuzz()
