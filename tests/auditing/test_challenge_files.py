from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from attention_cem.attacks import Challenge, RidgeAttack, SealBrokenError
from attention_cem.attacks.attacker_data import load_attacker_data
from attention_cem.attacks.challenge import ANSWERS_FOLDER
from attention_cem.attacks.sealed_folder import seal, sha256_of
from attention_cem.auditing import Answers, Budget, audit, write_challenge
from attention_cem.data import to_float
from attention_cem.defences import (
    AdversarialInverter,
    DefenceStack,
    FeatureDropout,
    GaussianNoise,
    InformationBottleneck,
)
from attention_cem.splitting import build_split_model
from tests.attacks.helpers import challenge_for, identity_client, noise, small_data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = small_data(train=40, test=20)
    server = nn.Sequential(nn.Flatten(), nn.Linear(768, 4))
    challenge_for(
        tmp_path / "c", identity_client(), noise(0.1), data, server=server, members=data.train, non_members=data.test
    )
    return tmp_path / "c"


def test_challenge__holds_what_the_threat_model_grants(folder: Path) -> None:
    data = small_data(train=40, test=20)
    challenge = Challenge(folder)
    assert challenge.test_features().shape == (1, 20, 12, 8, 8)
    assert torch.equal(challenge.attacker_images().images, data.train.images)
    x = to_float(data.test.images)
    assert torch.equal(challenge.client()(x), identity_client()(x))
    assert challenge.stack().describe() == noise(0.1).describe()
    deviation = (challenge.test_features()[0] - identity_client()(x)).std()
    assert 0.09 < float(deviation) < 0.11
    assert 0 <= challenge.manifest["accuracy"] <= 1


def test_challenge__clean_features_are_made_once_for_all_attacks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    challenge, data = Challenge(folder), small_data(train=40, test=20)
    clean = challenge.clean_features(torch.device("cpu"))
    torch.testing.assert_close(clean, identity_client()(to_float(data.train.images)))
    monkeypatch.setattr(Challenge, "attacker_images", lambda self: pytest.fail("read again"))
    assert challenge.clean_features(torch.device("cpu")) is clean


def test_challenge__very_large_clean_features_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attention_cem.attacks.challenge._KEPT_AT_MOST", 40 * 12 * 8 * 8 * 4 - 1)
    challenge, cpu = Challenge(folder), torch.device("cpu")
    first, second = challenge.clean_features(cpu), challenge.clean_features(cpu)
    assert first is not second and torch.equal(first, second)


def test_challenge__is_complete_without_our_code(folder: Path) -> None:
    """A third party has JSON, safetensors and the README: every file is listed there with its hash."""
    manifest = json.loads((folder / "manifest.json").read_text())
    plain = folder.parent / "plain"
    plain.touch()
    for name, entry in manifest["files"].items():
        assert sha256_of(folder / name) == entry["sha256"]
        assert (folder / name).stat().st_mode == plain.stat().st_mode, "others must be able to read it"
    readme = (folder / "README.md").read_text()
    assert all(name in readme for name in manifest["files"] if name != "README.md")


def test_challenge__noise_is_fresh_for_every_image_and_draw(tmp_path: Path) -> None:
    data = small_data(train=40, test=20)
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), data, test_draws=3, attacker_draws=2)
    first, second, third = challenge.test_features() - identity_client()(to_float(data.test.images))
    for a, b in ((first, second), (second, third), (first[1:], first[:-1])):
        assert abs(float((a * b).mean())) < 5 * 8.3e-5  # σ²/√15,000 is the standard error for independent noise
    assert challenge.attacker_features().shape[0] == 2


def test_challenge__carries_learned_and_structured_defences(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = build_split_model("tiny_cnn", 4, (3, 16, 16))
    bottleneck = InformationBottleneck(z_shape=(8, 4, 4), weight=1e-3)
    nn.init.normal_(bottleneck.mean_layer.weight)
    stack = DefenceStack([bottleneck, FeatureDropout(0.3)])
    challenge = challenge_for(tmp_path / "c", model.client, stack, small_data(train=40, test=20))
    z = torch.rand(4, 8, 4, 4)
    torch.testing.assert_close(challenge.stack().emission(z), stack.emission(z))


TAMPERING = {
    "truncated": lambda f: (f / "test_features.safetensors").write_bytes(
        (f / "test_features.safetensors").read_bytes()[:-1]
    ),
    "altered": lambda f: _flip_last_byte(f / "attacker_images.safetensors"),
    "missing": lambda f: (f / "attacker_features.safetensors").unlink(),
    "added": lambda f: (f / "client.pkl").write_bytes(b"x"),
    "linked": lambda f: _link(f / "client.json"),
    "manifest broken": lambda f: (f / "manifest.json").write_text("{"),
    "manifest of another kind": lambda f: (f / "manifest.json").write_text('{"format": "x"}'),
}


def _flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def _link(path: Path) -> None:
    moved = path.parent.parent / "elsewhere.json"
    shutil.move(path, moved)
    path.symlink_to(moved)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("truncated", r"test_features\.safetensors has \d+ bytes.*truncated.*sha256"),
        ("altered", r"attacker_images\.safetensors was altered: sha256 [0-9a-f]{64}.*lists [0-9a-f]{64}"),
        ("missing", r"attacker_features\.safetensors is missing"),
        ("added", r"client\.pkl is not listed"),
        ("linked", r"client\.json is missing or not a plain file"),
        ("manifest broken", r"manifest\.json is not valid JSON"),
        ("manifest of another kind", "expected 'attention-cem/challenge'"),
    ],
)
def test_challenge__tampered_folder_is_refused_by_name_and_hash(folder: Path, how: str, told: str) -> None:
    TAMPERING[how](folder)
    with pytest.raises(SealBrokenError, match=told):
        Challenge(folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"about": [1, 2]}, "about: expected an object, got list"),
        ({"accuracy": "high"}, "accuracy: expected a number from 0 to 1, or null, got 'high'"),
        ({"accuracy": float("nan")}, "accuracy: expected a number from 0 to 1"),
        ({"defence": None}, "defence: expected an object with a list of defences"),
        ({"z_shape": [float("inf")]}, "misstates cannot convert float infinity"),
        ({"test_images": 0}, "test_images: expected a whole number from 1"),
        ({"threat_model": {"white_box": True, "test_draws": 0}}, "test_draws: expected a whole number from 1"),
        ({"threat_model": {"white_box": True, "test_draws": 10**9}}, r"has shape \(1, 20, 12, 8, 8\), expected"),
        ({"class_names": ["a"] * 400_000}, "names 400000 classes of images"),
    ],
)
def test_challenge__a_manifest_that_misstates_something_is_refused(folder: Path, change: dict, told: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(SealBrokenError, match=told):
        Challenge(folder)


def test_challenge__a_defence_larger_than_its_file_is_not_built(tmp_path: Path) -> None:
    adversary = AdversarialInverter(weight=1.0, z_shape=(12, 8, 8), image_shape=(3, 16, 16), width=4, blocks=0)
    challenge_for(tmp_path / "c", identity_client(), DefenceStack([adversary]), small_data(train=40, test=20))
    file = tmp_path / "c" / "manifest.json"
    file.write_text(file.read_text().replace('"width": 4', '"width": 40000'))
    with pytest.raises(SealBrokenError, match=r"described with \d+ bytes of weights, the file has"):
        Challenge(tmp_path / "c").stack()


def test_challenge__a_defence_of_more_blocks_than_its_file_has_tensors_is_not_built(tmp_path: Path) -> None:
    """Blocks take their time one by one, even where they take no memory."""
    adversary = AdversarialInverter(weight=1.0, z_shape=(12, 8, 8), image_shape=(3, 16, 16), width=4, blocks=0)
    challenge_for(tmp_path / "c", identity_client(), DefenceStack([adversary]), small_data(train=40, test=20))
    file = tmp_path / "c" / "manifest.json"
    file.write_text(file.read_text().replace('"blocks": 0', '"blocks": 100000000'))
    with pytest.raises(SealBrokenError, match=r"described with 100000000 blocks, the file has \d+ tensors"):
        Challenge(tmp_path / "c").stack()


def test_challenge__a_defence_that_looks_at_its_values_while_it_is_made_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=40, test=20))
    made = GaussianNoise.__init__

    def looking(self: GaussianNoise, sigma: float) -> None:
        made(self, torch.ones(()).item() * sigma)

    monkeypatch.setattr(GaussianNoise, "__init__", looking)
    assert len(challenge.stack().defences) == 1


def test_challenge__a_client_that_is_not_the_one_behind_the_features_is_refused(tmp_path: Path) -> None:
    client = nn.Sequential(identity_client(), nn.Conv2d(12, 12, 1))
    challenge_for(tmp_path / "c", client, noise(0.1), small_data(train=40, test=20))
    load_attacker_data(Challenge(tmp_path / "c"), torch.device("cpu"))
    with torch.no_grad():
        client[1].weight.zero_()
    other = challenge_for(tmp_path / "other", client, noise(0.1), small_data(train=40, test=20))
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("c", "other")]
    shutil.copy(other.folder / "client.safetensors", tmp_path / "c" / "client.safetensors")
    manifests[0]["files"]["client.safetensors"] = manifests[1]["files"]["client.safetensors"]
    (tmp_path / "c" / "manifest.json").write_text(json.dumps(manifests[0]))
    with pytest.raises(SealBrokenError, match="is not the one behind its features"):
        load_attacker_data(Challenge(tmp_path / "c"), torch.device("cpu"))


FEATURES, MEMBERS = "test_features.safetensors", "membership.safetensors"
ANSWERS = f"{ANSWERS_FOLDER}/answers.safetensors"


@pytest.mark.parametrize(
    ("file", "name", "change", "told"),
    [
        (FEATURES, "features", lambda x: x.double(), "is of type F64, expected F32"),
        (FEATURES, "features", lambda x: x.half(), "is of type F16, expected F32"),
        (FEATURES, "features", lambda x: x.index_fill(1, torch.tensor([3]), torch.nan), "holds NaN or infinity"),
        ("attacker_features.safetensors", "features", lambda x: x / 0, "holds NaN or infinity"),
        ("attacker_features.safetensors", "features", lambda x: x[:0], r"has shape \(0, 40"),
        ("attacker_images.safetensors", "images", lambda x: x.float(), "is of type F32, expected U8"),
        (MEMBERS, "labels", lambda x: x + 100, "labels must name one of 4 classes"),
        (MEMBERS, "known", lambda x: torch.full_like(x, 7), "known must be 1"),
        (MEMBERS, "known", lambda x: torch.full_like(x, -1), "known must be 1"),
        (MEMBERS, "logits", lambda x: x * torch.nan, "holds NaN or infinity"),
        (ANSWERS, "images", lambda x: x[:5], r"asks for images \(20, 3, 16, 16\)"),
        (ANSWERS, "images", lambda x: x.float(), "is of type torch.float32, expected torch.uint8"),
        (ANSWERS, "labels", lambda x: x - 100, "labels must name one of 4 classes"),
        (ANSWERS, "is_member", lambda x: x.long(), "is of type torch.int64, expected torch.bool"),
        (ANSWERS, "is_member", lambda x: x[:3], "does not fit the 40 candidates"),
        (ANSWERS, "is_member", lambda x: ~x, "does not fit the 40 candidates"),
    ],
)
def test_audit__a_sealed_folder_of_wrong_tensors_is_refused_by_name(
    folder: Path, file: str, name: str, change: Callable[[Tensor], Tensor], told: str
) -> None:
    stored = load_file(folder / file)
    save_file({**stored, name: change(stored[name]).contiguous()}, folder / file)
    seal_again(folder)
    one = Budget("one", (("ridge", RidgeAttack()),), bound_images=0, membership_epochs=1)
    with pytest.raises(SealBrokenError, match=told):
        audit(folder, folder.parent / "out", budget=one, device="cpu")


def test_challenge__a_missing_tensor_of_the_answers_is_told(folder: Path) -> None:
    stored = load_file(folder / ANSWERS)
    save_file({"labels": stored["labels"]}, folder / ANSWERS)
    seal_again(folder)
    with pytest.raises(SealBrokenError, match="tensor 'images' cannot be read"):
        Answers(folder, Challenge(folder).manifest["answers_sha256"]).images()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"output": {"step": 0}}, r"makes \(1, 3, 16, 16\) of an image, its features have shape \(1, 12, 8, 8\)"),
        ({"output": 3}, "makes int of an image"),
        ({"options": {"foo": 1}}, "cannot be run on an image"),
    ],
)
def test_challenge__a_client_that_makes_no_z_is_refused(folder: Path, change: dict[str, Any], told: str) -> None:
    recipe = json.loads((folder / "client.json").read_text())
    (recipe if "output" in change else recipe["steps"][1]).update(change)
    (folder / "client.json").write_text(json.dumps(recipe))
    seal_again(folder)
    with pytest.raises(SealBrokenError, match=told):
        Challenge(folder).client()


def seal_again(folder: Path) -> None:
    """As somebody would who wrote the files with a program of his own."""
    for place in (folder / ANSWERS_FOLDER, folder):
        manifest = json.loads((place / "manifest.json").read_text())
        del manifest["files"]
        if place == folder:
            manifest["answers_sha256"] = sha256_of(folder / ANSWERS_FOLDER / "manifest.json")
        seal(place, manifest)


def test_challenge__a_manifest_cannot_point_outside_its_folder(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["../secret"] = {"bytes": 1, "sha256": "0" * 64}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SealBrokenError, match="plain file names"):
        Challenge(folder)


def test_answers__are_apart_and_belong_to_their_challenge(folder: Path, tmp_path: Path) -> None:
    data = small_data(train=40, test=20)
    challenge = Challenge(folder)
    answers = Answers(folder, challenge.manifest["answers_sha256"])
    assert torch.equal(answers.images(), data.test.images)
    assert not any(hasattr(challenge, name) for name in ("answers", "test_images", "test_labels"))
    other = challenge_for(tmp_path / "other", identity_client(), noise(0.1), small_data(train=40, test=10))
    with pytest.raises(SealBrokenError, match="another challenge"):
        Answers(folder, other.manifest["answers_sha256"])
    _flip_last_byte(folder / ANSWERS_FOLDER / "answers.safetensors")
    Challenge(folder)  # the attacker's part is whole
    with pytest.raises(SealBrokenError, match=r"answers\.safetensors was altered"):
        Answers(folder, challenge.manifest["answers_sha256"])


def test_write_challenge__never_overwrites_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    data = small_data(train=40, test=20)
    (tmp_path / "there").mkdir()
    with pytest.raises(ValueError, match="never overwritten"):
        challenge_for(tmp_path / "there", identity_client(), noise(0.1), data)

    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("broken client")

    with pytest.raises(RuntimeError, match="broken client"):
        challenge_for(tmp_path / "new", Failing(), noise(0.1), data)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_write_challenge__refuses_a_client_that_makes_nan(tmp_path: Path) -> None:
    client = nn.Sequential(identity_client(), nn.Conv2d(12, 12, 1))
    nn.init.constant_(client[1].weight, torch.nan)
    for white_box in (True, False):
        with pytest.raises(ValueError, match="make NaN or infinity of 20 of 20 test images"):
            challenge_for(tmp_path / "c", client, noise(0.1), small_data(train=40, test=20), white_box=white_box)


def test_write_challenge__refuses_a_client_that_draws_in_evaluation_mode(tmp_path: Path) -> None:
    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = identity_client()

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(self.body(x), 0.5, True)

    with pytest.raises(ValueError, match="the same z of the same image in evaluation mode"):
        challenge_for(tmp_path / "c", Drawing(), noise(0.1), small_data(train=40, test=20))


def test_write_challenge__refuses_sets_that_prove_nothing(tmp_path: Path) -> None:
    data = small_data(train=40, test=20)
    arguments = {"client": identity_client(), "stack": noise(0.1)}
    with pytest.raises(ValueError, match="never saw"):
        write_challenge(tmp_path / "a", attacker=data.train, test=data.train, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 2 attacker images and 1 test image, got 1 and 20"):
        write_challenge(tmp_path / "d", attacker=data.train.limit(1, 0), test=data.test, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="draws"):
        write_challenge(tmp_path / "b", attacker=data.train, test=data.test, test_draws=0, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="both members and non_members"):
        write_challenge(tmp_path / "c", attacker=data.train, test=data.test, members=data.train, **arguments)  # type: ignore[arg-type]


def test_write_challenge__leaves_mode_and_generator_of_the_callers_objects_alone(tmp_path: Path) -> None:
    client, stack = build_split_model("tiny_cnn", 4, (3, 16, 16)).client.train(), DefenceStack([GaussianNoise(0.1)])
    stack.generator = torch.Generator().manual_seed(5)
    own = stack.generator
    challenge_for(tmp_path / "c", client, stack, small_data(train=40, test=20))
    assert client.training and stack.generator is own


def test_write_challenge__counts_test_images_the_attacker_owns(tmp_path: Path) -> None:
    data = small_data(train=40, test=20)
    leaked = torch.cat([data.train.images[:5], data.test.images[5:]])
    test = data.test.__class__(leaked, data.test.labels, data.test.class_names)
    write_challenge(tmp_path / "c", client=identity_client(), stack=noise(0.1), attacker=data.train, test=test)
    assert Challenge(tmp_path / "c").manifest["test_images_attacker_owns"] == 5


@pytest.mark.parametrize("shape", [[0, 8, 8], [2**20, 2**20, 1], "wide", None])
def test_challenge__absurd_shapes_are_refused(folder: Path, shape: object) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["z_shape"] = shape
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SealBrokenError, match="lacks or misstates"):
        Challenge(folder)
