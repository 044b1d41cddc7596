"""The handbook's own Sphinx extensions, without a build."""

from __future__ import annotations

import doctest
import importlib
import subprocess
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.docs.pages import DOCS

EXTENSIONS = (
    "chinese_lines",
    "chinese_search",
    "generated_results",
    "house_docstrings",
    "mathml",
    "provenance",
    "two_languages",
)


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    return importlib.import_module(name)


@pytest.mark.parametrize("name", EXTENSIONS)
def test_extension__examples_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = doctest.testmod(module(name, monkeypatch), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


@pytest.mark.parametrize(
    "tex",
    [
        r"H(z \mid y)",
        r"I(z;\hat z) \le \sum_k \pi_k\Big(-\log\pi_k + \tfrac12\log\frac{|\Sigma_k+\Sigma_p|}{|\Sigma_p|}\Big)",
        r"a &= b \\ c &= d",
        r"\begin{cases} 1 & x > 0 \\ 0 & \text{otherwise} \end{cases}",
        r"\lVert z - \mu_c \rVert^2, \quad \mathbb{E}, \quad \mathcal{N}(0, \sigma^2 I)",
    ],
)
def test_mathml__house_equations_are_well_formed(tex: str, monkeypatch: pytest.MonkeyPatch) -> None:
    element = ElementTree.fromstring(module("mathml", monkeypatch).to_mathml(tex, block=True))
    assert element.tag.endswith("math") and element.get("display") == "block"


@pytest.mark.parametrize(
    ("tex", "same_as"),
    [
        (r"\tfrac12\log a", r"\tfrac{1}{2}\log a"),
        (r"\Big(a\Big)", r"(a)"),
        (r"\hat x_n^2", r"\hat{x}_n^2"),
    ],
)
def test_mathml__shorthand_means_what_it_means_in_tex(tex: str, same_as: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mathml = module("mathml", monkeypatch)
    assert mathml.to_mathml(tex, block=True) == mathml.to_mathml(same_as, block=True)


def test_mathml__indices_stand_beside_an_accented_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    mathml = module("mathml", monkeypatch)
    for tex, outer in ((r"\hat x_n", "msub"), (r"\hat x^2", "msup"), (r"\tilde w_k^2", "msubsup")):
        element = ElementTree.fromstring(mathml.to_mathml(tex, block=False))
        assert [child.tag.rpartition("}")[2] for child in element] == [outer]
        assert not [child for child in element.iter() if child.tag.endswith("munderover")]
    limits = mathml.to_mathml(r"\sum_{k=1}^n k", block=True)
    assert "munderover" in limits, "limits of a sum stay above and below it"


def test_mathml__nonsense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mathml = module("mathml", monkeypatch)
    with pytest.raises((mathml.MathError, SyntaxError)):
        mathml.to_mathml(r"\nosuchcommand{x}", block=True)


def test_docstrings__examples_and_equations_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["Of `z` and |Σ|:", "", ".. math::", "    p(c|z)", "", ">>> `x`", "|1|", "", "again |a|"]
    assert list(module("house_docstrings", monkeypatch).restructured(lines)) == [
        r"Of ``z`` and \|Σ\|:", "", ".. math::", "    p(c|z)", "", ">>> `x`", "|1|", "", r"again \|a\|",
    ]  # fmt: skip


def test_generated__links_lead_to_the_handbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generated = module("generated_results", monkeypatch)
    (tmp_path / "results" / "figures").mkdir(parents=True)
    for name in ("README.md", "main.md", "odd.md", "summary.json", "figures/a.svg"):
        (tmp_path / "results" / name).write_text("")
    text = (
        "<!-- made -->\n# Title\n\n标题\n\n- [Main](main.md) 主要\n\n"
        "[main](main.md#a) ![p](figures/a.svg) [data](summary.json) [o](https://x.org)\n"
    )
    assert generated.for_the_handbook(text, "results/README.md", tmp_path).strip() == (
        "[main](/results/main.md#a) ![p](/../../results/figures/a.svg) data (`results/summary.json`) [o](https://x.org)"
    )
    for target, message in (("gone.md", "not there"), ("odd.md", "no page")):
        with pytest.raises(generated.SphinxError, match=message):
            generated.for_the_handbook(f"[x]({target})", "results/README.md", tmp_path)


def test_provenance__names_the_commit_and_uncommitted_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provenance = module("provenance", monkeypatch)
    assert provenance.storing_commit(tmp_path, "figures") == provenance.UNKNOWN
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a.json").write_text("1")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "figures"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    commit = provenance.storing_commit(tmp_path, "figures")
    assert len(commit) == 9
    assert commit in provenance.sentence(tmp_path, "figures", chinese=True)
    (tmp_path / "figures" / "a.json").write_text("2")
    assert provenance.storing_commit(tmp_path, "figures") == f"{commit}+changes"


def test_extensions__all_are_tested_here() -> None:
    there = {path.stem for path in (DOCS / "_ext").glob("*.py")}
    assert there == {*EXTENSIONS, "freshness"}  # freshness is tested with a build, in test_site.py
