"""The server speaks the Open Inference Protocol to NVIDIA's client, and refuses everything else politely."""

from __future__ import annotations

import gzip
import http.client
import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest

from tests.shipping.conftest import needs_mlserver
from tests.shipping.serving import free_ports, serving

triton_grpc = pytest.importorskip("tritonclient.grpc")
triton_http = pytest.importorskip("tritonclient.http")
pytest.importorskip("onnxruntime")


TOO_LARGE = "'z' is too large: the logits are not finite"


@pytest.fixture(scope="module")
def z(bundle):
    return np.random.default_rng(0).random((3, *bundle.z_shape), dtype=np.float32)


@pytest.fixture(scope="module")
def expected(bundle, z):
    return onnxruntime.InferenceSession(bundle.server_path).run(None, {"z": z})[0]


def tensor(module, z, **options):
    made = module.InferInput("z", list(z.shape), "FP32")
    made.set_data_from_numpy(z, **options)
    return made


def body_of(z, **changes):
    return {
        "inputs": [{"name": "z", "datatype": "FP32", "shape": list(z.shape), "data": z.ravel().tolist(), **changes}]
    }


def post(server, body, path="/v2/models/shapes/infer", method="POST", headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=20)
    try:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, content, {"content-type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_server__nvidia_client_over_grpc(server, bundle, z, expected):
    client = triton_grpc.InferenceServerClient(server.grpc)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("shapes")
    metadata = client.get_model_metadata("shapes", as_json=True)
    assert [int(n) for n in metadata["inputs"][0]["shape"]] == [-1, *bundle.z_shape]
    assert client.get_server_metadata().name == "attention-cem"
    answer = client.infer("shapes", [tensor(triton_grpc, z)], request_id="one")
    np.testing.assert_allclose(answer.as_numpy("logits"), expected, rtol=1e-4, atol=1e-4)
    assert answer.get_response().id == "one"


def test_server__nvidia_client_over_http_with_json_tensors(server, bundle, z, expected):
    client = triton_http.InferenceServerClient(server.http)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("shapes")
    assert client.get_model_metadata("shapes")["outputs"][0]["shape"] == [-1, 4]
    wanted = [triton_http.InferRequestedOutput("logits", binary_data=False)]
    answer = client.infer("shapes", [tensor(triton_http, z, binary_data=False)], outputs=wanted, request_id="two")
    np.testing.assert_allclose(answer.as_numpy("logits"), expected, rtol=1e-4, atol=1e-4)
    assert answer.get_response()["id"] == "two"


def test_server__typed_contents_over_grpc_are_answered_in_kind(server, z, expected):
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    grpc = pytest.importorskip("grpc")
    with grpc.insecure_channel(server.grpc) as channel:
        request = service_pb2.ModelInferRequest(model_name="shapes")
        given = request.inputs.add(name="z", datatype="FP32", shape=z.shape)
        given.contents.fp32_contents.extend(z.ravel().tolist())
        answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=20)
    values = np.array(answer.outputs[0].contents.fp32_contents).reshape(expected.shape)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)


def test_server__nested_json_and_version_one_are_understood(server, z, expected):
    status, content = post(server, body_of(z, data=z.tolist()), "/v2/models/shapes/versions/1/infer")
    assert status == 200
    values = np.array(json.loads(content)["outputs"][0]["data"]).reshape(expected.shape)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)


BAD_TENSORS = {
    "nan": ({"data": ["NaN"] * 96}, "must be numbers"),
    "wrong_shape": ({"shape": [3, 2, 4, 5]}, r"[N, 2, 4, 4]"),
    "no_samples": ({"shape": [0, 2, 4, 4], "data": []}, "N, the samples in it, from 1 to 64"),
    "too_many_samples": ({"shape": [65, 2, 4, 4]}, "N, the samples in it, from 1 to 64"),
    "negative_shape": ({"shape": [-3, 2, 4, 4]}, "N, the samples in it, from 1 to 64"),
    "huge_shape": ({"shape": [2**62, 2**62, 4, 4]}, "[N, 2, 4, 4]"),
    "shape_of_booleans": ({"shape": [True, 2, 4, 4]}, "[N, 2, 4, 4]"),
    "wrong_type": ({"datatype": "FP64"}, "datatype FP32"),
    "wrong_name": ({"name": "x"}, "expected the input 'z'"),
    "text": ({"data": ["a"] * 96}, "must be numbers"),
    "ragged": ({"data": [[1.0], [1.0, 2.0]]}, "must be numbers"),
    "missing_values": ({"data": [0.5] * 95}, "must be numbers"),
    "objects": ({"data": {"a": 1}}, "must be numbers"),
    "too_large_for_float32": ({"data": [1e300] * 96}, "NaN or infinity"),
    "too_large_for_int64": ({"data": [10**400] * 96}, "must be numbers"),
    "binary": ({"parameters": {"binary_data_size": 384}}, "binary tensor extension"),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_server__bad_tensor_over_http_is_a_4xx_that_says_what_was_expected(server, z, case):
    changes, message = BAD_TENSORS[case]
    status, content = post(server, body_of(z, **changes))
    assert 400 <= status < 500
    assert message in json.loads(content)["error"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e39"])
def test_server__not_finite_over_http_is_refused(server, z, value):
    body = json.dumps(body_of(z)).replace(str(z.ravel().tolist()[0]), value, 1).encode()
    status, content = post(server, body)
    assert status == 400 and b"NaN or infinity" in content


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_server__not_finite_over_grpc_is_refused(server, z, value):
    broken = z.copy()
    broken[1, 0, 0, 0] = value
    client = triton_grpc.InferenceServerClient(server.grpc)
    with pytest.raises(triton_grpc.InferenceServerException, match="INVALID_ARGUMENT.*must be finite"):
        client.infer("shapes", [tensor(triton_grpc, broken)])


@pytest.mark.parametrize("shape", [(3, 2, 4, 5), (65, 2, 4, 4), (2, 4, 4), (3, 32)])
def test_server__wrong_shape_over_grpc_is_refused(server, shape):
    client = triton_grpc.InferenceServerClient(server.grpc)
    with pytest.raises(triton_grpc.InferenceServerException, match="INVALID_ARGUMENT.*must have the shape"):
        client.infer("shapes", [tensor(triton_grpc, np.zeros(shape, np.float32))])


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_server__finite_values_that_overflow_in_the_model_are_refused(server, z, scheme):
    huge = np.full_like(z, 3e38)
    if scheme == "http":
        status, content = post(server, body_of(huge))
        assert (status, json.loads(content)) == (400, {"error": TOO_LARGE})
    else:
        client = triton_grpc.InferenceServerClient(server.grpc)
        with pytest.raises(triton_grpc.InferenceServerException, match=f"INVALID_ARGUMENT.*{TOO_LARGE}"):
            client.infer("shapes", [tensor(triton_grpc, huge)])


def test_server__bytes_that_do_not_fit_the_shape_are_refused(server, z):
    made = tensor(triton_grpc, z)
    made._raw_content = made._raw_content[:-1]
    with pytest.raises(triton_grpc.InferenceServerException, match="INVALID_ARGUMENT.*number of bytes"):
        triton_grpc.InferenceServerClient(server.grpc).infer("shapes", [made])


def test_server__oversized_body_is_refused_before_it_is_read(server):
    status, content = post(server, b"{" + b" " * 300_000)
    assert status == 413 and b"at most" in content
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=20)
    connection.putrequest("POST", "/v2/models/shapes/infer")
    connection.putheader("content-length", str(10**12))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_server__oversized_chunked_body_is_refused(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=20)
    chunks = (b" " * 50_000 for _ in range(10))
    connection.request("POST", "/v2/models/shapes/infer", chunks, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_server__oversized_message_over_grpc_is_refused(server):
    client = triton_grpc.InferenceServerClient(server.grpc)
    with pytest.raises(triton_grpc.InferenceServerException, match="RESOURCE_EXHAUSTED"):
        client.infer("shapes", [tensor(triton_grpc, np.zeros((5000, 2, 4, 4), np.float32))])


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/", b"", {}, 404),
        ("GET", "/v2/docs", b"", {}, 404),
        ("GET", "/openapi.json", b"", {}, 404),
        ("POST", "/v2/repository/index", b"{}", {}, 404),
        ("POST", "/v2/repository/models/shapes/unload", b"", {}, 404),
        ("POST", "/v2/models/shapes/infer_stream", b"{}", {}, 404),
        ("POST", "/v2/models/other/infer", b"{}", {}, 404),
        ("GET", "/v2/models/other", b"", {}, 404),
        ("POST", "/v2/models/shapes/versions/2/infer", b"{}", {}, 404),
        ("GET", "/v2/models/shapes/infer", b"", {}, 405),
        ("DELETE", "/v2/models/shapes", b"", {}, 405),
        ("POST", "/v2/models/shapes/infer", gzip.compress(b"{}", mtime=0), {"content-encoding": "gzip"}, 415),
        ("POST", "/v2/models/shapes/infer", b"{}", {"inference-header-content-length": "2"}, 415),
        ("POST", "/v2/models/shapes/infer", b"[" * 100_000, {}, 400),
        ("POST", "/v2/models/shapes/infer", b"\xff\xfe", {}, 400),
        ("POST", "/v2/models/shapes/infer", b"", {}, 400),
        ("POST", "/v2/models/shapes/infer", b"[]", {}, 400),
        ("POST", "/v2/models/shapes/infer", b'{"inputs": []}', {}, 400),
        ("POST", "/v2/models/shapes/infer", b'{"inputs": [null]}', {}, 400),
        ("POST", "/v2/models/shapes/infer", b'{"inputs": [{}], "id": "a\\nb"}', {}, 400),
        ("POST", "/v2/models/shapes/infer", b'{"inputs": [{}], "outputs": [{"name": "z"}]}', {}, 400),
    ],
)
def test_server__bad_request_is_a_4xx_with_json(server, method, path, body, headers, status):
    found, content = post(server, body, path, method, headers)
    assert found == status
    assert set(json.loads(content)) == {"error"}


def test_server__models_cannot_be_unloaded_over_grpc(server):
    client = triton_grpc.InferenceServerClient(server.grpc)
    with pytest.raises(triton_grpc.InferenceServerException, match="UNIMPLEMENTED"):
        client.unload_model("shapes")
    assert client.is_model_ready("shapes")


def test_server__errors_and_log_never_repeat_features(server, z):
    marked = z.copy()
    marked[:] = 0.7123456
    _, content = post(server, body_of(marked, shape=[3, 2, 4, 5], id="x"))
    _, other = post(server, body_of(marked, name="Marker0815"))
    client = triton_grpc.InferenceServerClient(server.grpc)
    with pytest.raises(triton_grpc.InferenceServerException):
        client.infer("shapes", [tensor(triton_grpc, marked.reshape(3, 32))])
    client.infer("shapes", [tensor(triton_grpc, marked)])
    seen = content.decode() + other.decode() + server.text()
    assert "0.71234" not in seen and "Marker0815" not in seen
    assert "Traceback" not in seen and "site-packages" not in seen


def test_server__metrics_count_by_outcome_and_not_by_what_strangers_send(server, z):
    for number in range(5):
        post(server, b"{}", f"/v2/models/stranger{number}/infer")
    post(server, body_of(z))
    text = server.metrics()
    assert 'attention_cem_requests_total{outcome="answered",transport="http"}' in text
    assert 'attention_cem_requests_total{outcome="refused",transport="http"}' in text
    assert "attention_cem_batch_samples_bucket" in text
    assert "stranger" not in text


def test_triton_layout__is_well_formed(bundle):
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    repository = bundle.folder / "triton" / "shapes"
    config = text_format.Parse((repository / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
    assert config.name == "shapes" and config.platform == "onnxruntime_onnx" and config.max_batch_size > 0
    session = onnxruntime.InferenceSession(repository / "1" / "model.onnx")
    assert [config.input[0].name, *config.input[0].dims] == ["z", *session.get_inputs()[0].shape[1:]]
    assert [config.output[0].name, *config.output[0].dims] == ["logits", *session.get_outputs()[0].shape[1:]]
    assert model_config_pb2.DataType.Name(config.input[0].data_type) == "TYPE_FP32"


def command(bundle, *options):
    http_port, grpc_port, metrics_port = free_ports(3)
    ports = ["--http-port", str(http_port), "--grpc-port", str(grpc_port), "--metrics-port", str(metrics_port)]
    full = [sys.executable, "-m", "attention_cem.cli.main", "serve", str(bundle), *ports, *options]
    return subprocess.run(full, capture_output=True, text=True, timeout=60, check=False)


def test_server__refuses_an_altered_bundle_by_name(bundle, tmp_path):
    twin = shutil.copytree(bundle.folder, tmp_path / "twin")
    with (twin / "server.onnx").open("r+b") as stream:
        stream.write(b"\x00")
    result = command(twin)
    assert result.returncode == 2 and "server.onnx was altered" in result.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_server__ends_without_a_traceback(bundle, how):
    needs_mlserver()
    with serving(bundle.folder) as running:
        assert running.kill(how) == 0
        assert "Traceback" not in running.text() and "CancelledError" not in running.text()


def test_runtime__plain_mlserver_takes_the_exported_settings(bundle):
    # In its own process: MLServer and NVIDIA's client cannot be imported into one.
    script = f"""
import asyncio, json
from mlserver import ModelSettings
from mlserver.types import InferenceRequest
from mlserver.errors import MLServerError
settings = ModelSettings.parse_file({str(bundle.folder / "mlserver" / "model-settings.json")!r})
async def main():
    runtime = settings.implementation(settings)
    assert await runtime.load()
    tensor = {{"name": "z", "datatype": "FP32", "shape": [1, 2, 4, 4], "data": [0.5] * 32}}
    answer = await runtime.predict(InferenceRequest(id="a", inputs=[tensor]))
    print(answer.outputs[0].shape)
    for half in ({bundle.server_sha256!r}, "0" * 64):
        try:
            named = InferenceRequest(inputs=[tensor], parameters={{"attention_cem_server_sha256": half}})
            print((await runtime.predict(named)).outputs[0].shape)
        except MLServerError as error:
            print(error.status_code)
    for value in (float("nan"), 3e38):
        try:
            await runtime.predict(InferenceRequest(inputs=[{{**tensor, "data": [value] * 32}}]))
        except MLServerError as error:
            print(error.status_code, error)
asyncio.run(main())
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    refused = ["400 'z' must be finite: it holds NaN or infinity", f"400 {TOO_LARGE}"]
    assert result.stdout.splitlines() == ["[1, 4]", "[1, 4]", "409", *refused], result.stderr
