"""``export_bundle``: a trained run as a folder that a device and a server can be given."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save

from attention_cem.defences import DefenceStack
from attention_cem.shipping.bundle import (
    CLIENT_FILE,
    FEATURE,
    IMAGES_INPUT,
    LOGITS,
    SERVER_FILE,
    WEIGHTS_FILE,
    Bundle,
    noise_name,
    open_bundle,
    write_manifest,
)
from attention_cem.shipping.graphs import write_client_graph, write_server_graph
from attention_cem.shipping.numerical_check import check_client, check_server
from attention_cem.shipping.serving_files import mlserver_model_settings, mlserver_settings, triton_config
from attention_cem.splitting import SplitModel
from attention_cem.training.files import new_folder
from attention_cem.training.loading import TrainedRun
from attention_cem.versions import program_versions

NOISE_SOURCE = (
    "os.urandom, drawn anew for every image by the client runtime (Box-Muller for normal, multiples of 2^-24 for "
    "uniform). The client graph has no default for these inputs and cannot run without them; the runtime offers no "
    "way to leave them out. A runtime of your own must draw them from the operating system's generator: the random "
    "nodes of ONNX Runtime on a CPU are predictable."
)
PREPROCESSING = {
    "crop": "central square",
    "resize": "lanczos",
    "scaling": "in the client graph: uint8 / 255",
}


@dataclass(frozen=True, eq=False)
class Halves:
    """What is exported: the trained halves, their defence and the names of the classes.

    Args:
        model: client and server; exported in evaluation mode, on the CPU.
        stack: the defences the client was trained with.
        image_shape: ``(C, H, W)``.
        class_names: one per output.
        about: plain data for the manifest, e.g. the run's name and accuracy.
    """

    model: SplitModel
    stack: DefenceStack
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    about: dict[str, Any]

    @classmethod
    def of(cls, run: TrainedRun) -> Halves:
        """The halves of a run folder read by `load_run`."""
        about = {
            "run": run.folder.resolve().name,
            "best_epoch": run.facts.get("best_epoch"),
            "validation_accuracy": run.facts.get("best_accuracy"),
            "config_hash": run.facts.get("config_hash"),
        }
        return cls(run.model, run.stack, run.image_shape, run.class_names, about)


def export_bundle(halves: Halves, out: str | os.PathLike[str], *, name: str = "attention_cem") -> Bundle:
    """Write client, server, manifest, Triton repository and MLServer settings to the new folder ``out``.

    The defence is part of the client graph; its randomness is an input of the graph that has no default. After the
    export both graphs are run in ONNX Runtime against the torch modules. The folder appears under its name only when
    everything agreed.

    Args:
        halves: what to export.
        out: folder to make; must not exist.
        name: of the model on the wire.

    Raises:
        ValueError: a folder that exists, an impossible name, or a graph that does not compute what torch does.
    """
    target = Path(out)
    if target.exists():
        raise ValueError(f"{target} exists already; a bundle is never overwritten, name another folder")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise ValueError(f"the model's name must be letters, digits, '_' or '-', at most 64, received {name!r}")
    model, stack = halves.model.cpu().eval(), halves.stack.cpu().eval()
    z_shape = model.z_shape(halves.image_shape)
    num_classes = len(halves.class_names)
    with new_folder(target) as building:
        opset = write_client_graph(building / CLIENT_FILE, model.client, stack, halves.image_shape, z_shape)
        write_server_graph(building / SERVER_FILE, model.server, z_shape)
        checked = {
            "client": check_client(building / CLIENT_FILE, model.client, stack, halves.image_shape, z_shape),
            "server": check_server(building / SERVER_FILE, model.server, z_shape, num_classes),
        }
        weights = {key: value.detach().contiguous().clone() for key, value in model.server.state_dict().items()}
        (building / WEIGHTS_FILE).write_bytes(save(weights))  # save_file's error on a full disk is no OSError
        _write_serving_files(building, name, z_shape, num_classes)
        write_manifest(building, _facts(halves, name, z_shape, opset, checked))
    return open_bundle(target)


def _write_serving_files(building: Path, name: str, z_shape: tuple[int, ...], num_classes: int) -> None:
    repository = building / "triton" / name
    (repository / "1").mkdir(parents=True)
    shutil.copyfile(building / SERVER_FILE, repository / "1" / "model.onnx")
    (repository / "config.pbtxt").write_text(triton_config(name, z_shape, num_classes))
    settings = building / "mlserver"
    settings.mkdir()
    (settings / "settings.json").write_text(mlserver_settings())
    (settings / "model-settings.json").write_text(mlserver_model_settings(name, z_shape, num_classes))


def _facts(
    halves: Halves, name: str, z_shape: tuple[int, ...], opset: int, checked: dict[str, dict[str, float]]
) -> dict[str, Any]:
    draws = halves.stack.draws()
    channels, height, width = halves.image_shape
    noise_inputs = [
        {"name": noise_name(position), "datatype": "FP32", "shape": [-1, *z_shape], "draw": draw}
        for position, draw in enumerate(draws)
    ]
    images = {"name": IMAGES_INPUT, "datatype": "UINT8", "shape": [-1, channels, height, width]}
    feature = {"name": FEATURE, "datatype": "FP32", "shape": [-1, *z_shape]}
    logits = {"name": LOGITS, "datatype": "FP32", "shape": [-1, len(halves.class_names)]}
    return {
        "name": name,
        "image_shape": [channels, height, width],
        "z_shape": list(z_shape),
        "class_names": list(halves.class_names),
        "preprocessing": {**PREPROCESSING, "mode": "L" if channels == 1 else "RGB", "size": [height, width]},
        "client": {"file": CLIENT_FILE, "inputs": [images, *noise_inputs], "outputs": [feature]},
        "server": {"file": SERVER_FILE, "weights": WEIGHTS_FILE, "inputs": [feature], "outputs": [logits]},
        "noise": {"draws": list(draws), "source": NOISE_SOURCE, "may_be_omitted": False},
        "defence": halves.stack.describe(),
        "numerical_check": checked,
        "about": halves.about,
        "versions": {**program_versions(), "onnx_opset": opset},
    }
