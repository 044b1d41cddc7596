from __future__ import annotations

import copy
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from attention_cem.cli.audit_progress import LineWatcher, watch_audit
from attention_cem.cli.audit_text import attack_table, audit_text, headline_words
from attention_cem.cli.main import main
from attention_cem.training import train
from tests.training.helpers import tiny_config

QUICK = ["class_mean", "nearest_neighbour", "ridge", "inverter_short"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run that was audited once."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(tiny_config(folder, train__epochs=1))
    assert main(["audit", str(folder), "--budget", "quick", "--device", "cpu", "--quiet"]) == 0
    return folder


@pytest.fixture(scope="module")
def record(run: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((run / "audit.json").read_text())
    return loaded


def test_audit__leaves_record_and_pictures_in_the_run_folder(run: Path, record: dict[str, Any]) -> None:
    assert json.loads((run / "audit" / "audit.json").read_text()) == record
    assert [row["name"] for row in record["attacks"]] == QUICK
    assert record["accuracy"] == json.loads((run / "run.json").read_text())["test"]["accuracy"]
    assert record["budget"] == "quick" and record["about"]["run"] == "run"
    for name in ("reconstructions", *(f"reconstructions_{attack}" for attack in QUICK)):
        width, height = Image.open(run / "audit" / f"{name}.png").size
        rows = 1 + (len(QUICK) if name == "reconstructions" else 1)
        assert width > 16 * 66 + 2 and height == rows * 66 + 2  # 16 images and a label


def test_audit__second_call_keeps_everything_and_prints_table_headline_and_definitions(
    run: Path, record: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(run), "--budget", "quick", "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("kept from before") == len(QUICK)
    text = " ".join(printed.out.split())
    worst = record["headline"]
    assert f"An attacker rebuilds test images with MSE {worst['mse']:.5f}" in text
    assert f"PSNR {worst['psnr']:.2f} dB" in text and f"worst of {len(QUICK)} attacks" in text
    assert f"receipt: {worst['status']}" in text
    assert f"right on {100 * record['accuracy']:.2f} % of the test images" in text
    for row in record["attacks"]:
        assert f"{row['name']} {row['mse']:.5f}" in text
    for definition in ("mse", "psnr", "status", "converged", "calibrated", "membership", "settled"):
        assert " ".join(record["definitions"][definition].split()) in text
    assert str(run / "audit.json") in text and str(run / "audit" / "reconstructions.png") in text


def test_audit__works_without_rich_and_tensorboard(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] in ("rich", "tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "attention_cem.cli.audit_bars", raising=False)
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with watch_audit(quiet=False) as watcher:
        assert isinstance(watcher, LineWatcher)
    assert main(["audit", str(run), "--budget", "quick", "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    assert "attack 4/4  inverter_short" in printed.err and "An attacker rebuilds" in printed.out


def test_audit__of_a_challenge_writes_beside_it_and_refuses_what_needs_a_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    challenge = tmp_path / "given"
    assert main(["challenge", str(run), "-o", str(challenge), "--black-box", "--limit", "24"]) == 0
    assert main(["audit", str(challenge), "--limit", "5"]) == 2
    assert "--limit and --data-root need a run" in capsys.readouterr().err
    assert main(["audit", str(challenge), "--budget", "quick", "--device", "cpu", "--quiet"]) == 0
    text = capsys.readouterr().out
    found = json.loads((tmp_path / "given-audit" / "audit.json").read_text())
    assert not found["threat_model"]["white_box"] and "black-box" in text
    assert "a black-box challenge does not hold the client" in text
    assert found["accuracy"] == json.loads((run / "run.json").read_text())["test"]["accuracy"]


def test_audit__an_altered_challenge_is_refused_by_name_and_hash(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    challenge = tmp_path / "given"
    shutil.copytree(run / "audit" / "challenge", challenge)
    path = challenge / "attacker_images.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert main(["audit", str(challenge), "--budget", "quick", "--device", "cpu"]) == 2
    refused = capsys.readouterr().err
    assert refused.count("\n") == 1 and "attacker_images.safetensors was altered: sha256 " in refused
    assert not (tmp_path / "given-audit" / "audit.json").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "RUN|CHALLENGE"),
        (["nowhere"], "nowhere is neither a run folder (it has no config.toml) nor a challenge folder"),
        (["x" * 300], "File name too long; check the permissions"),
        (["RUN", "--budget", "huge"], "invalid choice: 'huge'"),
        (["RUN", "--bugdet", "quick"], "did you mean --budget?"),
        (["RUN", "--limit", "many"], "whole number of at least 1, got 'many'"),
        (["RUN", "--device", "cuda:99"], "'cuda:99' is not there"),
        (["RUN", "--budget", "quick", "--limit", "10"], "a weaker one does not replace it"),
        (["RUN", "-o", "RUN/run.json"], "run.json is a file, expected a folder; name another folder with -o"),
        (["RUN", "-o", "new", "--limit", "1"], "at least 2 attacker images and 1 test image, got 1 and 1"),
        (["RUN", "--calibration-cache", "RUN/run.json"], "name another folder with --calibration-cache"),
    ],
)
def test_audit__bad_requests_are_refused_in_one_line(
    run: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / "audit.json").read_bytes()
    assert main(["audit", *(each.replace("RUN", str(run)) for each in arguments)]) == 2
    refused = capsys.readouterr().err.removeprefix("writing the challenge to new/challenge\n")
    assert refused.startswith("attention-cem audit: error: ") and refused.count("\n") == 1
    assert told in refused
    assert (run / "audit.json").read_bytes() == before


def test_audit__damaged_records_and_weights_come_with_a_remedy(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "run"
    shutil.copytree(run, damaged)
    record = damaged / "audit" / "audit.json"
    record.write_bytes(record.read_bytes()[:200])
    assert main(["audit", str(damaged), "--budget", "quick", "--device", "cpu"]) == 2
    told = capsys.readouterr().err
    assert f"{record} is not valid JSON" in told and told.endswith("; delete it and call again\n")
    record.unlink()
    assert main(["audit", str(damaged), "--budget", "quick", "--device", "cpu", "--quiet"]) == 0
    best = damaged / "checkpoints" / "best.safetensors"
    best.write_bytes(best.read_bytes()[:500])
    capsys.readouterr()
    assert main(["audit", str(damaged), "--budget", "quick", "--device", "cpu"]) == 1
    told = capsys.readouterr().err
    assert "best.safetensors is damaged" in told and "--run.folder NEW" in told and told.count("\n") == 1


def command(folder: Path) -> list[str]:
    start = [sys.executable, "-m", "attention_cem.cli.main", "audit"]
    return [*start, str(folder), "--budget", "quick", "--device", "cpu"]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_audit__a_reader_who_closes_the_page_early_is_no_traceback(run: Path) -> None:
    process = subprocess.Popen(
        command(run), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(timeout=50) == 141 and "BrokenPipe" not in said and "Traceback" not in said
    process.stderr.close()


def stop_after_the_baselines(folder: Path, how: signal.Signals) -> tuple[int, str]:
    """Start an audit, send it a signal while the inverter is trained; exit code and what it said."""
    # a suite that runs in the background of a shell inherits an ignored SIGINT, which the program would respect
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command(folder), stderr=subprocess.PIPE, text=True, env=environment(), preexec_fn=heard)
    finished = folder / "audit" / "attacks" / "ridge.json"
    deadline = time.monotonic() + 50
    while not finished.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(how)
    _, errors = process.communicate(timeout=20)
    assert finished.exists() and not (folder / "audit.json").exists()
    return process.returncode, errors


@pytest.fixture
def larger_run(tmp_path: Path) -> Path:
    """Large enough for the inverter to be still under way when the signal comes."""
    train(tiny_config(tmp_path / "run", train__epochs=1, data__options__num_train=160))
    return tmp_path / "run"


@pytest.mark.slow
def test_audit__killed_midway_resumes_with_finished_attacks_kept(
    larger_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = stop_after_the_baselines(larger_run, signal.SIGKILL)
    assert code == -signal.SIGKILL
    kept = {path: path.stat().st_mtime_ns for path in (larger_run / "audit").rglob("*") if path.is_file()}
    assert kept
    assert main(["audit", str(larger_run), "--budget", "quick", "--device", "cpu"]) == 0
    said = capsys.readouterr().err
    assert said.count("kept from before") == 3 and "writing the challenge" not in said
    assert all(path.stat().st_mtime_ns == moment for path, moment in kept.items() if path.exists())
    record = json.loads((larger_run / "audit.json").read_text())
    assert [row["name"] for row in record["attacks"]] == QUICK


@pytest.mark.slow
def test_audit__ctrl_c_says_how_to_go_on(larger_run: Path) -> None:
    code, said = stop_after_the_baselines(larger_run, signal.SIGINT)
    assert code == 130 and "Traceback" not in said
    assert f"attention-cem audit {larger_run} --budget quick --device cpu" in said


def test_headline_words__marks_what_cannot_be_trusted(record: dict[str, Any]) -> None:
    changed = copy.deepcopy(record)
    changed["headline"] |= {"status": "passed", "note": "worst case over attacks with passing receipts"}
    assert "receipt: passed. " in headline_words(changed)
    changed["headline"] |= {"status": "under-trained", "note": "the true one is lower"}
    assert "receipt: under-trained, the true one is lower. " in headline_words(changed)
    changed["settled"]["verdict"] = "not settled"
    assert headline_words(changed).endswith("More attack effort will find more (not settled).")
    changed["headline"] = None
    assert headline_words(changed).startswith("No headline")


def test_attack_table__strongest_first_and_the_headline_marked(record: dict[str, Any]) -> None:
    lines = attack_table(record).splitlines()
    figures = [float(line.lstrip("> ").split()[1]) for line in lines[1:]]
    assert figures == sorted(figures)
    marked = [line.split()[1] for line in lines if line.startswith(">")]
    assert marked == [record["headline"]["attack"]]
    for row in record["attacks"]:
        assert next(line for line in lines if row["name"] in line).endswith(row["status"])


def test_audit_text__keeps_to_the_width_and_shows_every_warning(record: dict[str, Any]) -> None:
    text = audit_text({**record, "warnings": ["first warning", "second warning"]}, 100)
    table = attack_table(record)
    assert all(len(line) <= 100 for line in text.replace(table, "").splitlines())
    assert "first warning" in text and "second warning" in text
    for row in (recognised := copy.deepcopy(record))["attacks"]:
        row["identity"] = {"on_reconstructions": 0.125, "on_true_images": 0.9, "chance": 0.25}
    assert "in 12.5 % of the rebuilt images at most; in the true images 90.0 %" in audit_text(recognised, 200)
    without = copy.deepcopy(record) | {"membership": None, "accuracy": None, "warnings": []}
    assert "Take care" not in audit_text(without) and "Membership" not in audit_text(without)


def test_audit_bars__show_attack_and_time_left() -> None:
    pytest.importorskip("rich")
    from rich.console import Console

    from attention_cem.cli.audit_bars import audit_bars

    stream = io.StringIO()
    row = {"name": "inverter", "mse": 0.0123, "psnr": 19.1, "status": "passed", "receipt": {"seconds": 61.0}}
    with audit_bars(Console(file=stream, force_terminal=True, width=140)) as watcher:
        watcher.preparing("writing the challenge")
        watcher.started(["inverter", "gan_inverter"], "cpu")
        for done in range(1, 11):
            watcher.progress("inverter", done, 10, 0.02)
        watcher.progress("inverter: calibration", 1, 20, float("nan"))
        watcher.attack_done(row, kept=False)
        watcher.progress("gan_inverter", 1, 5, 0.03)
    shown = stream.getvalue()
    assert watcher.began and "writing the challenge" in shown
    assert "inverter  MSE 0.01230  PSNR 19.10 dB  passed  1 min 01 s" in shown
    assert "1/2" in shown and "best validation MSE 0.03000" in shown and "1/5" in shown and "left" in shown


def test_line_watcher__says_how_long_it_will_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = iter([0.0, *range(0, 100, 10)])
    monkeypatch.setattr("attention_cem.cli.audit_progress.time.monotonic", lambda: float(next(moments)))
    watcher = LineWatcher(every=15)
    for done in range(1, 6):
        watcher.progress("inverter", done, 10, 0.02)
    assert capsys.readouterr().err.splitlines() == [
        "inverter  3/10  best validation MSE 0.02000  about 1 min 10 s left",
        "inverter  5/10  best validation MSE 0.02000  about 50 s left",
    ]
