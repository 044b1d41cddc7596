"""The deck as a file: complete in both languages, sourced, and honest about what is missing."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from slides.build import build, main, page, slides_of
from slides.charts import ticks
from slides.goals import goal_table
from slides.sources import Shelf
from studies.publish import publish

from tests.slides.shelves import DATA, ROOT, bare, copied, write_summary
from tests.studies.publishing import MAIN, fill, repository

CHINESE = re.compile(r"[\u4e00-\u9fff]")


class Texts(HTMLParser):
    """What stands inside elements of one language, one text an element."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self.language, self.open, self.found = language, [], []  # type: ignore[var-annotated]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("br", "img", "meta", "link", "circle", "rect", "line", "path", "polyline"):
            return
        inside = dict(attributes).get("class") == self.language
        self.open.append(inside)
        if inside:
            self.found.append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        return

    def handle_endtag(self, tag: str) -> None:
        if self.open:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if any(self.open):
            self.found[-1] += data


def texts(html: str, language: str) -> list[str]:
    reader = Texts(language)
    reader.feed(html)
    return reader.found


def bodies(root: Path) -> dict[str, str]:
    return {slide.name: slide.body for slide in slides_of(root)}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copied(tmp_path_factory.mktemp("filled") / "house")
    write_summary(root)
    return root


def test_deck__has_a_group_meeting_s_length_and_one_file(tmp_path: Path) -> None:
    deck = build(target=tmp_path / "deck.html")
    html = deck.read_text()
    assert 12 <= html.count('<section class="slide') <= 17
    assert [path.name for path in tmp_path.iterdir()] == ["deck.html"]


def test_deck__reaches_for_nothing_outside(filled: Path) -> None:
    html = page(slides_of(filled), "0" * 9)
    addresses = re.findall(r"""(?:src|href)=["']([^"']+)""", html)
    assert addresses and all(address.startswith("data:") for address in addresses)
    assert "@import" not in html and "url(http" not in html
    assert "default-src 'none'" in html


@pytest.mark.parametrize("state", ["bare", "as it is", "filled"])
def test_languages__every_text_stands_in_both(state: str, filled: Path, tmp_path: Path) -> None:
    root = {"bare": bare(tmp_path / "bare"), "as it is": ROOT, "filled": filled}[state]
    for slide in slides_of(root):
        told = "".join([*slide.title, *slide.kicker])
        assert CHINESE.search(told), slide.name
        english, chinese = (texts(slide.body, language) for language in ("en", "zh"))
        assert len(english) == len(chinese) > 0, slide.name
        for one, other in zip(english, chinese, strict=True):
            assert one.strip() and other.strip(), slide.name
            remark = one.replace("中文", "")
            assert not CHINESE.search(remark), (slide.name, one)
            # Symbols and names alone may be the same in both; a sentence may not.
            if len(re.findall(r"[a-z]{2,}", one)) > 4:
                assert CHINESE.search(other), (slide.name, other)


def test_sources__every_slide_with_measured_numbers_names_its_files(filled: Path) -> None:
    measured = {
        "problem": "leak.json", "idea": "clouds.json", "four-stages": "captains.json", "shut-off": "gates.json",
        "talked-down": "talk_down.json", "sound": "scale.json", "recipe": "waves.json", "audit": "attacks-h200.json",
        "trade-off": "results/summary.json", "comparisons": "results/summary.json", "cost": "step-h200.json",
        "ship": "serving.json",
    }  # fmt: skip
    slides = {slide.name: slide for slide in slides_of(filled)}
    for name, file in measured.items():
        if 'class="missing"' not in slides[name].body:
            assert any(file in source for source in slides[name].sources if isinstance(source, str)), name
    html = page(list(slides.values()), "0" * 9)
    assert html.count("Source: ") == html.count("来源：") == sum(bool(slide.sources) for slide in slides.values())
    assert "runs at 012345678" in html


def test_sources__a_stored_file_is_cited_with_its_commit() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    assert re.fullmatch(r"LICENSE @ [0-9a-f]{9}(\+changes)?", Shelf(ROOT).cite("LICENSE"))


def test_missing__slides_without_files_say_so_and_show_no_number(tmp_path: Path) -> None:
    found = bodies(bare(tmp_path / "bare"))
    for name in (
        "problem",
        "idea",
        "four-stages",
        "shut-off",
        "talked-down",
        "sound",
        "recipe",
        "trade-off",
        "comparisons",
        "cost",
        "ship",
    ):
        assert "Not there yet:" in found[name] and "暂缺：" in found[name], name
    assert "<svg" not in found["trade-off"] + found["comparisons"] + found["cost"]
    assert not re.search(r"\d+\.\d", found["trade-off"] + found["cost"] + found["comparisons"])


def test_results__numbers_are_those_of_the_summary(tmp_path: Path) -> None:
    root = copied(tmp_path / "house")
    summary = write_summary(root)
    before = bodies(root)
    first = [("cifar10", other) for other in ("kmeans_best", "noise", "kmeans_published")]
    others = [(data, other) for other in ("kmeans_best", "noise", "kmeans_published") for data in DATA[1:]]
    records = [summary["comparisons"][data][f"sound_vs_{other}"] for data, other in first + others]
    records.sort(key=lambda record: record["ci95"] is None)  # those without an interval come last
    expected, rest = [record["mse_gain"] for record in records[:13]], len(records) - 13
    assert f" {rest} further: results/summary.json" in before["comparisons"]
    drawn = before["comparisons"].split("</svg>")[0]
    assert re.findall(r"<circle .*?>([\d.]+)×</text>", drawn) == [f"{ratio:.2f}" for ratio in expected]
    for target in summary["targets"]:
        assert f">{target['figure']:.3g}<" in before["comparisons"]
    runs = len(summary["cells"])
    assert f"{runs} runs" in before["trade-off"] and f"{runs} 次训练" in before["trade-off"]

    summary["comparisons"]["cifar10"]["sound_vs_noise"]["mse_gain"] = 3.21
    (root / "results/summary.json").write_text(json.dumps(summary))
    assert "3.21×" in bodies(root)["comparisons"] and "3.21×" not in before["comparisons"]


def test_results__also_what_shows_no_difference_is_drawn() -> None:
    """The deck once compared only what is ahead; that attention adds nothing is part of where we stand."""
    summary = json.loads((ROOT / "results/summary.json").read_text())
    drawn = bodies(ROOT)["comparisons"].split("</svg>")[0]
    for key, label in (
        ("sound_attention_mirrored_vs_sound_mirrored", "sound_attention / sound"),
        ("slots_vs_kmeans_best", "slots / kmeans_best"),
    ):
        gain = summary["comparisons"]["cifar10"][key]["mse_gain"]
        assert f">{label}</text>" in drawn and f">{gain:.2f}×</text>" in drawn


def test_goals__what_was_named_afterwards_and_proven_elsewhere_is_said(filled: Path) -> None:
    summary = json.loads((filled / "results/summary.json").read_text())
    late = sum(bool(target["met"] and target.get("named_afterwards")) for target in summary["targets"])
    told = bodies(filled)["comparisons"]
    assert late and f"{late} are met by a choice made when the figures were known" in told
    confirmed = {each for target in summary["targets"] for each in target.get("confirmed_in") or ()}
    assert all(each in told for each in confirmed) and ("on receipts in " in told) is bool(confirmed)


def test_comparisons__what_was_attacked_without_augmented_images_is_said(tmp_path: Path) -> None:
    root = copied(tmp_path / "house")
    file = root / "results/summary.json"
    summary = json.loads(file.read_text())
    found = summary["more_found_by_augmented"]
    ends = sorted(-100 * share for share in found["ours"])
    told = bodies(root)["comparisons"]
    assert f"no augmented images in the attack; they take {ends[0]:.0f} to {ends[1]:.0f} % from ours." in told
    for record in (each for by_key in summary["comparisons"].values() for each in by_key.values()):
        record["augmented"] = record["receipts"]["runs"]
    file.write_text(json.dumps(summary))
    assert "augmented" not in bodies(root)["comparisons"] and "增广" not in bodies(root)["comparisons"]


def test_cost__epochs_name_both_modes(tmp_path: Path) -> None:
    """Graph mode alone gave another ratio of sound to none than the goal on the slide before."""
    root = copied(tmp_path / "house")
    told = bodies(root)["cost"]
    for mode in ("throughput-h200", "throughput-h200-compiled"):
        rows = json.loads((root / f"results/benchmarks/{mode}.json").read_text())["rows"]
        seconds = next(r["epoch_s"] for r in rows if (r["method"], r["batch"], r["classes"]) == ("sound", 128, 10))
        assert f"{seconds:.2f}" in told
    (root / "results/benchmarks/throughput-h200-compiled.json").unlink()
    assert ", compiled" not in bodies(root)["cost"]


def test_shut_off__share_is_the_mean_of_the_stored_runs(filled: Path, tmp_path: Path) -> None:
    told = bodies(filled)["shut-off"]
    assert "(main-cifar10): off on 25% of the steps" in told and "12 runs" in told and "有 25% 处于关断状态" in told
    root = copied(tmp_path / "house")
    (root / "results/summary.json").unlink()
    assert "In the studies" not in bodies(root)["shut-off"]


def test_results__what_make_results_writes_is_understood(tmp_path: Path) -> None:
    """The real producer, from study results to slides: no imitation of its form in between."""
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10")
    publish(root)
    written = json.loads((root / "results/summary.json").read_text())
    found = bodies(root)
    cells = written["cells"]
    assert f"Study <code>main-cifar10</code>: {len(cells)} runs, 3 seeds" in found["trade-off"]
    methods = {cell["method"] for cell in cells}
    assert all(f">{method}</text>" in found["trade-off"] for method in methods)
    settings = {(cell["method"], cell["lambda"], cell["sigma"]) for cell in cells}
    assert found["trade-off"].count("<g><") == len(settings)
    for key in ("sound_vs_kmeans_best", "sound_vs_noise", "sound_vs_kmeans_published"):
        gain = written["comparisons"]["cifar10"][key]["mse_gain"]
        assert f"{gain:.2f}×</text>" in found["comparisons"], key
    assert found["comparisons"].count('class="yes"') == sum(target["met"] is True for target in written["targets"])
    assert found["comparisons"].count('class="open"') == sum(target["met"] is None for target in written["targets"])
    screened = [target for target in written["targets"] if target["met"] and target.get("screened")]
    assert found["comparisons"].count("yes, by screening") == len(screened)
    target, goal = {"name": "n", "threshold": "t", "figure": 1.6, "met": True}, "yes, by screening"
    assert goal in goal_table(Shelf(root), [{**target, "proven": False, "screened": True}])
    assert "yes, not every receipt passes" in goal_table(Shelf(root), [{**target, "proven": False, "screened": False}])
    assert goal not in goal_table(Shelf(root), [{**target, "proven": True, "screened": False}])


def test_cost__bars_follow_the_benchmark_file(tmp_path: Path) -> None:
    root = copied(tmp_path / "house")
    file = root / "results/benchmarks/step-h200.json"
    content = json.loads(file.read_text())
    for number, row in enumerate(content["rows"]):
        row["graph_ratio"] = 1 + 0.37 * number
    file.write_text(json.dumps(content))
    cost = bodies(root)["cost"]
    assert re.findall(r"([\d.]+)×</text>", cost) == [f"{row['graph_ratio']:.2f}" for row in content["rows"]]
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', cost)]
    assert widths == sorted(widths) and widths[-1] / widths[0] == pytest.approx(
        content["rows"][-1]["graph_ratio"], rel=0.01
    )


def test_exploration__speaks_only_until_a_study_does(tmp_path: Path) -> None:
    root = copied(tmp_path / "house")
    (root / "results/summary.json").unlink()
    assert "Leads, not results" in bodies(root)["trade-off"]
    write_summary(root)
    assert "Leads, not results" not in bodies(root)["trade-off"]


def test_broken_file__is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copied(tmp_path / "house")
    (root / "results/benchmarks/serving.json").write_text("{")
    with pytest.raises(ValueError, match=r"serving\.json is not JSON"):
        slides_of(root)
    (root / "results/benchmarks/serving.json").write_text('{"load": {}}')
    with pytest.raises(ValueError, match="slide ship: .* unexpected form"):
        slides_of(root)
    (root / "results/benchmarks/serving.json").write_text("[]")
    monkeypatch.setattr("slides.build.build", lambda target: slides_of(root))
    assert main([]) == 2
    assert "must hold an object" in capsys.readouterr().err


def test_text__from_files_is_escaped(tmp_path: Path) -> None:
    root = copied(tmp_path / "house")
    summary = write_summary(root)
    for cell in summary["cells"]:
        cell["method"] = f"<img onerror=x>{cell['method']}"
    summary["targets"].append({"name": "<script>", "threshold": "<b>", "figure": None, "met": None})
    (root / "results/summary.json").write_text(json.dumps(summary))
    found = bodies(root)
    assert "<img onerror" not in found["trade-off"] and "<script>" not in found["comparisons"]
    assert "&lt;img onerror" in found["trade-off"] and "&lt;script&gt;" in found["comparisons"]


def test_build__is_the_same_twice(tmp_path: Path) -> None:
    root = copied(tmp_path / "house")
    shutil.rmtree(root / "results/exploration")
    first, second = (build(root, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "slides").glob("*.py")))
def test_docstrings__examples_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"slides.{name}"), optionflags=doctest.ELLIPSIS).failed == 0


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.012, 0.034), (77.1, 88.0), (1.0, 6.0)])
def test_ticks__are_round_and_inside(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 2 <= len(found) <= 8 and low <= found[0] and found[-1] <= high
    steps = {round(b - a, 9) for a, b in pairwise(found)}
    assert len(steps) == 1
