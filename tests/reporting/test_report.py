from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import pytest
from matplotlib.font_manager import fontManager

from attention_cem.auditing.information import ASSUMPTIONS
from attention_cem.auditing.record import DEFINITIONS as AUDIT_DEFINITIONS
from attention_cem.reporting import ReportError, read_sources, write_report
from attention_cem.reporting.figures import font_families
from attention_cem.reporting.words import ASSUMPTIONS_ZH, DEFINITIONS_ZH, STUDY_DEFINITIONS_ZH, WORDS
from attention_cem.studies.comparison import DEFINITIONS
from attention_cem.training.chance_alarm import ChanceAlarm
from tests.reporting.folders import HOSTILE, make_run, make_study


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "defended")


def test_report__figures_are_those_of_the_files(audited: Path, tmp_path: Path) -> None:
    page = write_report([audited], tmp_path / "new" / "page.html").read_text()
    record = json.loads((audited / "audit.json").read_text())
    assert f"{record['headline']['mse']:.4g}" in page
    assert f"{100 * record['accuracy']:.1f} %" in page
    assert f"{record['bounds']['dfil']:.4g}" in page
    assert all(entry["name"] in page for entry in record["attacks"])
    assert "surrogate.lambd" in page and "0.05" in page


def test_report__what_stays_hidden_by_waves_is_a_share_of_what_one_who_sees_nothing_misses(
    audited: Path, tmp_path: Path
) -> None:
    record = json.loads((audited / "audit.json").read_text())
    page = write_report([audited], tmp_path / "page.html").read_text()
    assert "What stays hidden, coarse to fine" in page
    for band, part in record["headline"]["waves"].items():
        assert f"{band}: {part / record['floor_waves'][band]:.4g}" in page
    run = make_run(tmp_path / "older")
    del record["headline"]["waves"]
    (run / "audit.json").write_text(json.dumps(record))
    assert "What stays hidden, coarse" not in write_report([run], tmp_path / "older.html").read_text()


def test_report__says_what_protects_the_feature(audited: Path, tmp_path: Path) -> None:
    page = write_report([audited], tmp_path / "page.html").read_text()
    assert "z of shape 4×2×2 with this protection, in training or on the way: gaussian_noise (sigma 0.05)." in page
    assert "trained with the surrogate slot_mixture (λ 0.5)" in page
    plain = make_run(tmp_path / "plain", surrogate="none", audited=False)
    facts = json.loads((plain / "run.json").read_text()) | {"defences": {"defences": [], "noise_variance": 0.0}}
    (plain / "run.json").write_text(json.dumps(facts))
    bare = write_report([plain], tmp_path / "plain.html").read_text()
    assert "protection, in training or on the way: none." in bare and "trained with the surrogate" not in bare


def test_report__a_surrogate_of_no_weight_is_not_said_to_teach(tmp_path: Path) -> None:
    config = make_run(tmp_path / "run", audited=False) / "config.toml"
    config.write_text(config.read_text().replace("lambd = 0.5", "lambd = 0.0"))
    page = write_report([tmp_path / "run"], tmp_path / "page.html").read_text()
    assert "surrogate.lambd" in page and "trained with the surrogate" not in page


def test_report__names_may_be_strings(audited: Path, tmp_path: Path) -> None:
    # broke: the page was made, then "'str' object has no attribute 'parent'"
    page = write_report([str(audited)], str(tmp_path / "page.html"), figures=str(tmp_path / "figures"))
    assert page == tmp_path / "page.html" and page.is_file() and any((tmp_path / "figures").iterdir())


def test_report__is_small_and_self_contained(audited: Path, tmp_path: Path) -> None:
    page = write_report([audited], tmp_path / "page.html")
    assert page.stat().st_size < 5_000_000
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page.read_text())
    assert "http://" not in page.read_text() and "https://" not in page.read_text()


def test_report__same_folders_give_the_same_bytes(audited: Path, tmp_path: Path) -> None:
    first, second = (write_report([audited], tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_report__hostile_values_are_escaped(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", hostile=True)
    page = write_report([run], tmp_path / "page.html").read_text()
    assert HOSTILE not in page and "<img src=x" not in page
    assert page.count("<script") == 1
    assert "&lt;img src=x" in page


@pytest.mark.parametrize(
    ("share", "words"), [(1.0, "switched off on 100 % of the steps"), (0.7, "switched off on 70 % of the steps")]
)
def test_report__shut_off_surrogate_is_said_in_red(tmp_path: Path, share: float, words: str) -> None:
    run = make_run(tmp_path / "run", surrogate="slot_cross", shutoff=share, audited=False)
    page = write_report([run], tmp_path / "page.html").read_text()
    red = re.findall(r'<div class="bad".*?</div>', page)
    assert any(words in box for box in red)
    assert any("被关闭" in box for box in red)
    assert 'class="good"' not in page


def test_report__run_without_a_surrogate_says_what_else_protects_it(tmp_path: Path) -> None:
    bare = make_run(tmp_path / "bare", surrogate="none", audited=False)
    assert "nothing in training lowers what z says" in write_report([bare], tmp_path / "bare.html").read_text()
    run = make_run(tmp_path / "run", surrogate="none", audited=False)
    config, metrics = run / "config.toml", run / "metrics.jsonl"
    config.write_text(config.read_text() + "[model]\nblind_frequencies = 4\n")
    rows = [json.loads(line) | {"penalty.linear_leakage": 0.25} for line in metrics.read_text().splitlines()]
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = write_report([run], tmp_path / "run.html").read_text()
    assert "is: linear_leakage 0.25 (weighted terms" in page and "nothing in training lowers" not in page
    assert "never sees the 4×4 slowest waves" in page and "最慢的 4×4 个波" in page


def test_report__healthy_surrogate_is_not_red(audited: Path, tmp_path: Path) -> None:
    page = write_report([audited], tmp_path / "page.html").read_text()
    assert 'class="bad"' not in page
    assert "Alive: the surrogate slot_mixture" in page


def test_report__alarms_are_said_in_both_languages(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", alarms=("2.0 slots hold almost no samples",), audited=False)
    page = write_report([run], tmp_path / "page.html").read_text()
    assert "2.0 slots hold almost no samples" in page and "2.0 个槽几乎没有样本" in page


def test_report__model_that_learned_nothing_is_said_in_red_without_a_surrogate_too(tmp_path: Path) -> None:
    said = ChanceAlarm(num_classes=10, patience=1).update(0.1)
    assert said is not None
    run = make_run(tmp_path / "run", surrogate="none", alarms=(said,), audited=False)
    page = write_report([run], tmp_path / "page.html").read_text()
    assert any(said in box and "什么也没学到" in box for box in re.findall(r'<div class="bad".*?</div>', page))
    assert 'class="good"' not in page


def test_report__unaudited_run_says_that_nothing_is_known(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", audited=False)
    page = write_report([run], tmp_path / "page.html").read_text()
    assert WORDS["not_audited"][0] in page
    assert WORDS["no_pictures"][0] not in page  # there was no attack whose pictures could be missing


def test_report__first_words_say_what_leaks_and_how_sure_that_is(audited: Path, tmp_path: Path) -> None:
    audit = json.loads((audited / "audit.json").read_text())
    page = write_report([audited, make_run(tmp_path / "later", audited=False)], tmp_path / "page.html").read_text()
    said = page[: page.index('id="words"')]
    share = 100 * audit["headline"]["mse"] / audit["floor_mse"]
    for text in (f"{share:.3g} % of the error", f"误差为其 {share:.3g} %", audit["headline"]["note"]):
        assert text in said
    assert audit["settled"]["reason"] in said and WORDS["not_audited"][0] in said
    assert WORDS["receipt_is"][0] in said


def test_report__run_without_a_trustworthy_attack_is_not_said_to_be_unattacked(tmp_path: Path) -> None:
    # broke: "has not been attacked yet" above a table of receipts that all failed
    run = make_run(tmp_path / "run")
    record = json.loads((run / "audit.json").read_text()) | {"headline": None}
    (run / "audit.json").write_text(json.dumps(record))
    page = write_report([run], tmp_path / "page.html").read_text()
    assert WORDS["not_audited"][0] not in page and page.count(WORDS["no_headline"][0]) == 3


@pytest.mark.parametrize("lambd", [0.0, 0.5])
def test_report__surrogate_that_never_worked_is_not_said_to_have_taught(tmp_path: Path, lambd: float) -> None:
    # broke: "which teaches z to say little" beside "λ was 0 in every epoch", and "switched off when it should work"
    run = make_run(tmp_path / "run", surrogate="slot_cross", shutoff=1.0, audited=False)
    metrics = run / "metrics.jsonl"
    rows = [json.loads(line) | {"lambd": lambd} for line in metrics.read_text().splitlines()]
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = write_report([run], tmp_path / "page.html").read_text()
    assert "teaches z to say little" not in page
    assert ("λ was 0 in every epoch" in page) == (lambd == 0)
    assert ("switched off on 100 % of the steps" in page) == (lambd > 0)


def test_report__runs_attacked_on_other_images_are_not_put_beside_each_other_in_silence(
    audited: Path, tmp_path: Path
) -> None:
    other = make_run(tmp_path / "other", seed=1)
    record = json.loads((other / "audit.json").read_text())
    (other / "audit.json").write_text(json.dumps(record | {"floor_mse": 2 * record["floor_mse"]}))
    page = write_report([audited, other], tmp_path / "page.html").read_text()
    assert "so they are not in this row: other" in page and WORDS["other_images"][0] in page
    alone = write_report([audited], tmp_path / "alone.html").read_text()
    assert "so they are not in this row" not in alone and WORDS["other_images"][0] not in alone


def test_report__altered_pictures_are_not_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    answers = next((run / "challenge" / "answers").glob("*.safetensors"))
    answers.write_bytes(answers.read_bytes()[:-1] + b"x")
    page = write_report([run], tmp_path / "page.html").read_text()
    assert WORDS["no_pictures"][0] in page and "<img" not in page


@pytest.mark.parametrize(
    "attacks", [None, "x", [3], [{}], [{"name": "class_mean"}], [{"name": "class_mean", "mse": []}]]
)
def test_report__attacks_that_are_none_give_a_page_without_pictures(tmp_path: Path, attacks: object) -> None:
    # broke: TypeError and KeyError out of the search for the attack's pictures
    run = make_run(tmp_path / "run")
    record = json.loads((run / "audit.json").read_text()) | {"attacks": attacks}
    (run / "audit.json").write_text(json.dumps(record))
    page = write_report([run], tmp_path / "page.html").read_text()
    assert WORDS["no_pictures"][0] in page


def test_report__study_shows_verdicts_failures_and_runs(tmp_path: Path) -> None:
    page = write_report([make_study(tmp_path / "study")], tmp_path / "page.html").read_text()
    for text in ("better at 85 % accuracy: +10 % MSE", "one seed", "out of memory", "2 of 3 runs are done; 1 failed."):
        assert text in page
    assert 'id="run-1"' in page


def test_report__run_beside_a_study_is_in_the_plot(audited: Path, tmp_path: Path) -> None:
    page = write_report([audited, make_study(tmp_path / "study")], tmp_path / "page.html").read_text()
    plot = page[page.index('id="trade-off"') : page.index('id="studies"')]
    assert plot.count('class="mark"') == 3
    assert all(f'data-tip="{name}' in plot for name in ("defended ·", "kmeans λ", "slot_mixture λ"))


def test_sources__study_cannot_point_outside_itself(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study")
    make_run(tmp_path / "secret", audited=False)
    content = json.loads((study / "comparison.json").read_text())
    content["methods"]["kmeans"]["points"][0]["run"] = "../secret"
    (study / "comparison.json").write_text(json.dumps(content))
    _, (view,) = read_sources([study])
    assert [run.name for run in view.runs] == ["slot_mixture"]


def test_sources__classes_are_ordered_by_the_mean_of_their_errors(audited: Path) -> None:
    (view,), _ = read_sources([audited])
    evidence = view.evidence
    assert evidence is not None and len(evidence.mse) == 12
    for label, name in enumerate(("circle", "square", "star")):
        errors = [mse for mse, of in zip(evidence.mse, evidence.labels, strict=True) if of == label]
        assert evidence.class_mse[name] == pytest.approx(sum(errors) / len(errors))
    ordered = [evidence.mse[index] for index in evidence.worst_first()]
    assert ordered == sorted(evidence.mse)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.toml", "= nonsense", "not valid TOML"),
        ("metrics.jsonl", "{\n", "not JSON"),
        ("run.json", "[1, 2]", "cannot be read"),
        ("audit.json", "{" * 5000, "cannot be read"),
    ],
)
def test_sources__broken_files_are_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    run = make_run(tmp_path / "run", audited=False)
    (run / name).write_text(content)
    with pytest.raises(ReportError, match=f"(?s){name}.*{message}"):
        read_sources([run])


def test_sources__last_epoch_that_a_killed_process_left_half_written_is_not_counted(tmp_path: Path) -> None:
    # broke: no page of a run that was stopped, or still wrote, at that moment
    run = make_run(tmp_path / "run", audited=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 4, "lo')
    (view,), _ = read_sources([run])
    assert [row["epoch"] for row in view.metrics] == [1, 2, 3]


def test_sources__other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="neither a run"):
        read_sources([tmp_path])


def test_words__complete_in_both_languages() -> None:
    for key, (english, chinese) in WORDS.items():
        assert english.strip() and chinese.strip(), key
        fields = [set(re.findall(r"{(\w+)}", text)) for text in (english, chinese)]
        assert fields[0] == fields[1], key
    assert set(AUDIT_DEFINITIONS) == set(DEFINITIONS_ZH)
    assert set(DEFINITIONS) == set(STUDY_DEFINITIONS_ZH)
    assert set(ASSUMPTIONS) <= set(ASSUMPTIONS_ZH)


def test_figures__svg_and_png_of_each(audited: Path, tmp_path: Path) -> None:
    write_report([audited], tmp_path / "page.html", figures=tmp_path / "figures")
    names = sorted(path.name for path in (tmp_path / "figures").iterdir())
    stems = ["1-defended-curves", "1-defended-reconstructions", "1-defended-slots", "trade-off"]
    assert names == sorted(f"{stem}.{kind}" for stem in stems for kind in ("svg", "png"))


def test_figures__a_chinese_name_leaves_no_empty_boxes(tmp_path: Path) -> None:
    if len(font_families()) == 1:
        pytest.skip("no Chinese font is installed")
    run = make_run(tmp_path / "切分运行")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of each glyph that no font has
        write_report([run], tmp_path / "page.html", figures=tmp_path / "figures")


def test_figures__without_a_chinese_font_there_is_one_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fontManager, "get_font_names", lambda: ["DejaVu Sans", "PingFang SC", "Noto Sans CJK JP"])
    assert font_families() == ["DejaVu Sans", "Noto Sans CJK JP"]
    monkeypatch.setattr(fontManager, "get_font_names", lambda: ["DejaVu Sans"])
    assert font_families() == ["DejaVu Sans"]
