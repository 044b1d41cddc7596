"""Both halves must leave Python: ONNX for deployment, torch.compile for speed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attention_cem.splitting import SplitModel, build_split_model

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def onnx_output(half: nn.Module, example: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    dynamic = {0: torch.export.Dim("batch", min=1)}
    program = torch.onnx.export(half, (example,), dynamo=True, dynamic_shapes=(dynamic,), verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    (output,) = session.run(None, {session.get_inputs()[0].name: batch.numpy()})
    return torch.from_numpy(output)


@pytest.fixture(scope="module")
def vgg() -> SplitModel:
    torch.manual_seed(0)
    return build_split_model("vgg11_bn", 10, (3, 32, 32)).eval()


def test_split__client_exports_to_onnx_for_any_batch(vgg):
    batch = torch.rand(5, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(onnx_output(vgg.client, batch[:2], batch), vgg.client(batch), rtol=1e-5, atol=1e-5)


def test_split__server_exports_to_onnx_for_any_batch(vgg):
    z = torch.rand(5, 8, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(onnx_output(vgg.server, z[:2], z), vgg.server(z), rtol=1e-4, atol=1e-4)


def test_split__halves_compile_without_a_graph_break(vgg):
    x = torch.rand(2, 3, 32, 32)
    compiled = torch.compile(vgg, fullgraph=True, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), vgg(x), rtol=1e-6, atol=1e-6)
