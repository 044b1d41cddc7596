"""The client: one release per image, the same bytes on every retry, every file answered exactly once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image

from attention_cem.data.folders import load_pixels
from attention_cem.shipping import (
    RemoteClassifier,
    RequestRefusedError,
    ServerUnreachableError,
    open_transport,
    predict_files,
)
from attention_cem.shipping.preprocessing import find_images, read_image
from tests.shipping.conftest import SIGMA
from tests.shipping.serving import serving


class Flaky:
    """A wire that fails a few times before it answers."""

    def __init__(self, failures=0, error=ServerUnreachableError, answer=None):
        self.failures, self.error, self.answer = failures, error, answer
        self.seen = []

    def infer(self, model, z, request_id, timeout, server_sha256=None):
        self.seen.append((request_id, z.tobytes()))
        if len(self.seen) <= self.failures:
            raise self.error("away")
        return np.zeros((len(z), 4), np.float32) if self.answer is None else self.answer

    def close(self):
        pass


class Recording:
    """A real wire, and what went over it."""

    def __init__(self, wire):
        self.wire = wire
        self.sent, self.answers = [], []

    def infer(self, model, z, request_id, timeout, server_sha256=None):
        self.sent.append(z.copy())
        self.answers.append(self.wire.infer(model, z, request_id, timeout, server_sha256))
        return self.answers[-1]

    def close(self):
        self.wire.close()


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (5, 3, 16, 16), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    """Twenty-four small images and one file that is none."""
    inside = tmp_path / "images"
    inside.mkdir()
    random = np.random.default_rng(0)
    for number in range(24):
        Image.fromarray(random.integers(0, 256, (20, 28, 3), dtype=np.uint8)).save(inside / f"{number:02d}.png")
    (inside / "broken.jpg").write_bytes(b"no image")
    return inside


def test_remote__a_retry_sends_the_same_bytes_under_the_same_identifier(bundle, images):
    wire = Flaky(failures=3)
    RemoteClassifier(bundle, wire).logits(images)
    assert len(wire.seen) == 4
    assert len(set(wire.seen)) == 1


def test_remote__two_requests_never_share_noise_or_identifier(bundle, images):
    wire = Flaky()
    classifier = RemoteClassifier(bundle, wire)
    classifier.logits(images)
    classifier.logits(images)
    (first, noise), (second, other) = wire.seen
    assert first != second and noise != other


def test_remote__pauses_grow_and_patience_ends(bundle, images, monkeypatch):
    pauses = []
    clock = [0.0]

    def wait(self, seconds):
        pauses.append(seconds)
        clock[0] += seconds
        return False

    monkeypatch.setattr("attention_cem.shipping.remote.threading.Event.wait", wait)
    monkeypatch.setattr("attention_cem.shipping.remote.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("attention_cem.shipping.remote.random.uniform", lambda low, high: 1.0)
    with pytest.raises(ServerUnreachableError, match="no answer within 20 s"):
        RemoteClassifier(bundle, Flaky(failures=10**6), patience=20).logits(images)
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_remote__a_refusal_is_not_repeated(bundle, images):
    wire = Flaky(failures=1, error=RequestRefusedError)
    with pytest.raises(RequestRefusedError):
        RemoteClassifier(bundle, wire).logits(images)
    assert len(wire.seen) == 1


@pytest.mark.parametrize("answer", [np.zeros((5, 3), np.float32), np.full((5, 4), np.nan, np.float32)])
def test_remote__an_impossible_answer_is_refused(bundle, images, answer):
    with pytest.raises(RequestRefusedError, match="does it serve this bundle"):
        RemoteClassifier(bundle, Flaky(answer=answer)).logits(images)


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_remote__real_server_gives_the_trained_predictions(run, bundle, server, scheme):
    from attention_cem.data import synthetic_images

    images = synthetic_images(num_classes=4, num_train=16, num_test=200, size=16).test.images
    transport = open_transport(f"{scheme}://{server.grpc if scheme == 'grpc' else server.http}")
    wire = Recording(transport)
    predictions = RemoteClassifier(bundle, wire).predict(images.numpy())
    wire.close()
    released = torch.from_numpy(np.concatenate(wire.sent))
    with torch.no_grad():
        noise = released - run.model.client(images.float() / 255)
        logits = run.model.server(released)
    # Noise comes from the operating system, so the trained server half is asked about the very bytes that were sent.
    np.testing.assert_allclose(np.concatenate(wire.answers), logits.numpy(), rtol=1e-4, atol=1e-4)
    assert [each.label for each in predictions] == np.concatenate(wire.answers).argmax(1).tolist()
    assert noise.numel() >= 6400  # more than five standard errors below
    assert noise.std().item() == pytest.approx(SIGMA, rel=0.05)
    assert noise.mean().item() == pytest.approx(0, abs=0.07 * SIGMA)
    assert all(each.class_name == bundle.class_names[each.label] for each in predictions)
    assert all(0 < each.confidence <= 1 for each in predictions)


def test_remote__a_slow_or_absent_server_is_reported(bundle, images):
    transport = open_transport("grpc://127.0.0.1:1")
    with pytest.raises(ServerUnreachableError, match="no answer within 0.2 s"):
        RemoteClassifier(bundle, transport, patience=0.2, timeout=1).logits(images)


@pytest.mark.parametrize("name", ["timeout", "patience"])
@pytest.mark.parametrize("seconds", [float("nan"), -1.0])
def test_remote__times_that_are_none_are_refused(bundle, name, seconds):
    with pytest.raises(ValueError, match=f"expected .* at most 604800 .* received .*{seconds}"):
        RemoteClassifier(bundle, Flaky(), **{name: seconds})


@pytest.mark.parametrize("seconds", [float("inf"), 1e12])
def test_remote__a_timeout_that_no_clock_can_wait_for_is_refused_but_patience_may_be_endless(bundle, images, seconds):
    assert len(RemoteClassifier(bundle, Flaky(), patience=seconds).logits(images)) == len(images)
    with pytest.raises(ValueError, match=f"expected .* at most 604800 .* received .*{re.escape(str(seconds))}"):
        RemoteClassifier(bundle, Flaky(), timeout=seconds)


def test_preprocessing__equals_that_of_the_training_images(bundle, folder):
    files = sorted(folder.glob("*.png"))
    ours = np.stack([read_image(file, bundle) for file in files])
    assert np.array_equal(ours, load_pixels(files, 16, 3, None).numpy())


def test_preprocessing__finds_each_image_once_and_names_what_is_missing(folder, tmp_path):
    found = find_images([folder, folder / "03.png"])
    assert len(found) == 25 == len(set(found))
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        find_images([tmp_path / "absent"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no image"):
        find_images([tmp_path / "empty"])


def test_preprocessing__hidden_files_and_folders_are_not_sent(folder):
    before = find_images([folder])
    (folder / "._00.png").write_bytes(b"what macOS puts beside a file")
    (folder / ".thumbnails").mkdir()
    shutil.copy(folder / "00.png", folder / ".thumbnails" / "00.png")
    assert find_images([folder]) == before


def test_preprocessing__a_folder_that_cannot_be_looked_into_is_not_passed_over(folder, monkeypatch):
    # broke: "holds no image", or fewer results than images without a word
    def denied(place):
        raise PermissionError(13, "Permission denied", str(place))

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(PermissionError, match=folder.name):
        find_images([folder])


def test_preprocessing__a_link_that_leads_nowhere_is_named_when_it_is_read(bundle, folder):
    (folder / "gone.png").symlink_to(folder / "absent.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    os.mkfifo(folder / "pipe.png")  # reading it would wait for ever
    found = find_images([folder])
    assert {each.name for each in found} >= {"gone.png", "loop.png"}
    assert folder / "pipe.png" not in found
    for name in ("gone.png", "loop.png"):
        with pytest.raises(OSError, match=name):
            read_image(folder / name, bundle)


def answered(out):
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert lines[0]["format"] == "attention-cem/predictions"
    return [line["file"] for line in lines[1:]]


def test_streaming__every_file_has_one_line_and_a_second_call_adds_none(bundle, server, folder, tmp_path):
    classifier = RemoteClassifier(bundle, open_transport(f"grpc://{server.grpc}"), batch_size=5)
    files, out, seen = find_images([folder]), tmp_path / "out.jsonl", []
    result = predict_files(classifier, files, out, progress=lambda done, total: seen.append((done, total)))
    assert (result.answered, result.before, result.unreadable) == (24, 0, 1)
    assert sorted(answered(out)) == sorted(map(str, files))
    assert seen[0] == (0, 25) and seen[-1] == (25, 25)
    again = predict_files(classifier, files, out)
    assert (again.answered, again.before, again.unreadable) == (0, 24, 1)
    assert len(answered(out)) == 25


def test_streaming__an_interrupt_loses_nothing_and_the_next_call_goes_on(bundle, folder, tmp_path):
    class Interrupted(Flaky):
        def infer(self, model, z, request_id, timeout, server_sha256=None):
            if len(self.seen) == 3:
                raise KeyboardInterrupt
            return super().infer(model, z, request_id, timeout, server_sha256)

    files, out = find_images([folder]), tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        predict_files(RemoteClassifier(bundle, Interrupted(), batch_size=4), files, out, workers=1)
    assert len(answered(out)) == 12
    predict_files(RemoteClassifier(bundle, Flaky(), batch_size=4), files, out, workers=1)
    assert sorted(answered(out)) == sorted(map(str, files))


def test_streaming__an_interrupt_does_not_wait_for_a_server_that_is_away(bundle, folder, tmp_path):
    class AwayThenInterrupted(Flaky):
        def infer(self, model, z, request_id, timeout, server_sha256=None):
            self.seen.append(request_id)
            if len(set(self.seen)) == 2:
                raise KeyboardInterrupt
            raise ServerUnreachableError("away")

    began = time.monotonic()
    classifier = RemoteClassifier(bundle, AwayThenInterrupted(), batch_size=4, patience=600)
    with pytest.raises(KeyboardInterrupt):
        predict_files(classifier, find_images([folder]), tmp_path / "out.jsonl", workers=2)
    assert time.monotonic() - began < 20
    assert answered(tmp_path / "out.jsonl") == []


def test_streaming__a_line_cut_short_is_asked_again(bundle, folder, tmp_path):
    files, out = find_images([folder])[:6], tmp_path / "out.jsonl"
    predict_files(RemoteClassifier(bundle, Flaky(), batch_size=2), files, out, workers=1)
    out.write_bytes(out.read_bytes()[:-9])
    result = predict_files(RemoteClassifier(bundle, Flaky(), batch_size=2), files, out, workers=1)
    assert (result.answered, result.before) == (1, 5)
    assert sorted(answered(out)) == sorted(map(str, files))


def test_streaming__a_file_of_something_else_is_left_alone(bundle, folder, tmp_path):
    out = tmp_path / "notes.txt"
    for content, message in (
        ("my diary\n", "line 1, is not a JSON object"),
        ('{"a": 1}\n', "holds no predictions"),
        ('{"format": "attention-cem/predictions", "bundle": "0"}\n', "of another bundle"),
    ):
        out.write_text(content)
        with pytest.raises(ValueError, match=message):
            predict_files(RemoteClassifier(bundle, Flaky()), find_images([folder]), out)
        assert out.read_text() == content


def test_streaming__server_killed_and_restarted_every_input_is_answered_once(bundle, folder, tmp_path):
    with serving(bundle.folder) as running:
        wires = [open_transport(f"grpc://{running.grpc}") for _ in range(4)]
        rounds, results, errors = 3, [], []
        files = [file for file in find_images([folder]) if file.suffix == ".png"]
        started = threading.Event()

        def load(number, wire):
            classifier = RemoteClassifier(bundle, wire, batch_size=2, timeout=5, patience=60)
            try:
                for repeat in range(rounds):
                    out = tmp_path / f"{number}-{repeat}.jsonl"
                    predict_files(classifier, files, out, workers=2)
                    results.append(out)
                    started.set()
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=load, args=pair) for pair in enumerate(wires)]
        for each in threads:
            each.start()
        assert started.wait(30)
        running.kill()
        before = len(results)
        time.sleep(0.5)
        running.start()
        for each in threads:
            each.join(60)
        assert not errors
        assert before < len(results) == rounds * len(wires)
        for out in results:
            assert sorted(answered(out)) == sorted(map(str, files))


def test_device__predicting_does_not_import_torch(bundle):
    script = (
        "import sys; from attention_cem.shipping import open_bundle, RemoteClassifier, open_transport\n"
        f"RemoteClassifier(open_bundle({str(bundle.folder)!r}), open_transport('http://127.0.0.1:1'))\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_predict_command__answers_resumes_and_reports_an_absent_server(bundle, server, folder, tmp_path, capsys):
    from attention_cem.cli.main import main

    common = ["--bundle", str(bundle.folder), "-o", str(tmp_path / "out.jsonl"), "--quiet"]
    assert main(["predict", str(folder), "--server", f"grpc://{server.grpc}", *common]) == 1  # one file is no image
    assert "24 files answered, 0 were before, 1 could not be read" in capsys.readouterr().out
    assert main(["predict", str(folder), "--server", f"http://{server.http}", *common]) == 1  # it still is none
    assert "0 files answered, 24 were before, 1 could not be read" in capsys.readouterr().out
    Image.new("RGB", (16, 16)).save(folder / "broken.jpg")
    assert main(["predict", str(folder), "--server", f"http://{server.http}", *common]) == 0
    assert "1 files answered, 24 were before, 0 could not be read" in capsys.readouterr().out
    absent = ["predict", str(folder), "--server", "grpc://127.0.0.1:1", "--patience", "0.1", "--timeout", "1"]
    assert main([*absent, "--bundle", str(bundle.folder), "-o", str(tmp_path / "other.jsonl"), "--quiet"]) == 1
    assert "The same command goes on where it stopped" in capsys.readouterr().err
