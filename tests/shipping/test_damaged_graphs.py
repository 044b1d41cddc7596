"""Bundles whose hashes are right and whose graphs are not what the manifest promises, or no graphs at all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from attention_cem.cli.main import main
from attention_cem.shipping import open_bundle
from attention_cem.shipping.bundle import write_manifest
from attention_cem.shipping.device import DefendedClient
from tests.shipping.conftest import needs_mlserver
from tests.shipping.serving import free_ports


@pytest.fixture
def twin(bundle_folder, tmp_path):
    return shutil.copytree(bundle_folder, tmp_path / "twin")


def sign(folder, **changes):
    """Write the manifest anew, so that every hash is right."""
    write_manifest(folder, json.loads((folder / "manifest.json").read_text()) | changes)


def serve(folder):
    named = zip(("--http-port", "--grpc-port", "--metrics-port"), map(str, free_ports(3)), strict=True)
    options = [word for pair in named for word in pair]
    command = [sys.executable, "-m", "attention_cem.cli.main", "serve", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_predict__a_client_that_is_no_graph_is_told_in_one_line(twin, tmp_path, capsys):
    (twin / "client.onnx").write_bytes(b"garbage" * 99)
    sign(twin)
    Image.new("RGB", (16, 16)).save(tmp_path / "image.png")
    options = ["--server", "http://127.0.0.1:1", "--bundle", str(twin), "-o", str(tmp_path / "out.jsonl")]
    assert main(["predict", str(tmp_path / "image.png"), *options]) == 2
    errors = capsys.readouterr().err
    assert f"{twin / 'client.onnx'} cannot be opened by ONNX Runtime: " in errors
    assert errors.endswith("; export again\n") and errors.count("\n") == 1


def test_serve__a_server_that_is_no_graph_is_told_in_one_line(twin):
    needs_mlserver()
    (twin / "server.onnx").write_bytes(b"garbage" * 99)
    sign(twin)
    result = serve(twin)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert f"{twin / 'server.onnx'} cannot be opened by ONNX Runtime: " in result.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z_shape": [2, 4, 5]}, "its manifest promises {'z': ('tensor(float)', 2, 4, 5)}"),
        ({"class_names": ["a", "b"]}, "gives (2, 4), its manifest promises (2, 2)"),
    ],
)
def test_serve__a_server_of_another_shape_is_told_in_one_line(twin, changes, message):
    needs_mlserver()
    sign(twin, **changes)
    result = serve(twin)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert message in result.stderr and "export again" in result.stderr


@pytest.mark.parametrize(
    "changes", [{"image_shape": [3, 64, 64]}, {"image_shape": [1, 16, 16]}, {"z_shape": [2, 4, 5]}]
)
def test_device__a_client_of_another_shape_is_refused(twin, changes):
    sign(twin, **changes)
    with pytest.raises(ValueError, match=r"takes the inputs .* its manifest promises .* export again"):
        DefendedClient(open_bundle(twin))


def test_device__a_client_of_another_type_is_refused(twin):
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(twin / "client.onnx")
    graph.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    graph.graph.ClearField("node")
    graph.graph.node.add(op_type="Cast", input=["noise_0"], output=["z"]).attribute.add(name="to", type=2, i=1)
    onnx.save(graph, twin / "client.onnx")
    sign(twin)
    with pytest.raises(ValueError, match=r"takes the inputs .*tensor\(double\)"):
        DefendedClient(open_bundle(twin))


def test_device__a_client_that_releases_another_shape_is_refused(twin):
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(twin / "client.onnx")
    graph.graph.ClearField("node")
    graph.graph.node.add(op_type="Flatten", input=["noise_0"], output=["z"])
    del graph.graph.output[0].type.tensor_type.shape.dim[:]
    for size in (None, 32):
        graph.graph.output[0].type.tensor_type.shape.dim.add(dim_value=size, dim_param=None if size else "batch")
    onnx.save(graph, twin / "client.onnx")
    sign(twin)
    with pytest.raises(ValueError, match=r"gives \(1, 32\), its manifest promises \(1, 2, 4, 4\); export again"):
        DefendedClient(open_bundle(twin)).release(np.zeros((1, 3, 16, 16), np.uint8))


def test_runtime__can_be_unloaded_before_it_was_loaded(twin):
    needs_mlserver()
    (twin / "server.onnx").write_bytes(b"garbage" * 99)
    sign(twin)
    # In its own process: MLServer and NVIDIA's client cannot be imported into one.
    script = f"""
import asyncio
from mlserver import ModelSettings
settings = ModelSettings.parse_file({str(twin / "mlserver" / "model-settings.json")!r})
async def main():
    runtime = settings.implementation(settings)
    try:
        await runtime.load()
    except ValueError:
        print(await runtime.unload())
asyncio.run(main())
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout == "True\n", result.stderr
