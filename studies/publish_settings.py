"""What is compared with what: ``results/comparisons.toml``, read and checked. Standard library only."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

SETTINGS = "results/comparisons.toml"
PUBLISHED = "results/published-cifar10.toml"
WITHOUT_CEM = "noise"
_KEYS = (
    "data",
    "prefer",
    "envelopes",
    "training_images",
    "page",
    "conclusion",
    "finding",
    "method",
    "together",
    "comparison",
    "stack",
    "target",
    "picture",
)


@dataclass(frozen=True)
class Page:
    """One generated page and the studies it shows."""

    name: str
    title: str
    title_zh: str
    studies: tuple[str, ...]

    @property
    def file(self) -> str:
        return f"results/{self.name}.md"


@dataclass(frozen=True)
class Stack:
    """A base defence that methods are stacked on, by what stands around their names.

    >>> Stack("dropout", "dropout_", "").core("dropout_sound")
    'sound'
    >>> Stack("dropout", "dropout_", "").core("dropout")  # the defence alone
    'noise'
    >>> Stack("ARL", "", "_arl").core("sound") is None
    True
    """

    name: str
    prefix: str
    suffix: str

    def core(self, method: str) -> str | None:
        """The method without the stack's affix; None for a method that is not on this stack."""
        if method == (self.prefix + self.suffix).strip("_"):
            return WITHOUT_CEM if self.name else None
        core = method.removeprefix(self.prefix).removesuffix(self.suffix)
        return core if core and len(core) == len(method) - len(self.prefix) - len(self.suffix) else None


PLAIN = Stack("", "", "")


@dataclass(frozen=True)
class Picture:
    """Images as the attacks rebuilt them.

    Args:
        study: whose runs are shown.
        seed: of the runs.
        comparison: the runs nearest to the accuracy at which it was read are shown.
        methods: a row each, and what it is called there.
    """

    study: str
    seed: int
    comparison: str
    methods: Mapping[str, str]


@dataclass(frozen=True)
class Finding:
    """A sentence in both languages, and the comparisons that bear it: study, data, ``a_vs_b``, verdict."""

    words: str
    words_zh: str
    shown_by: tuple[tuple[str, str, str, str], ...]


@dataclass(frozen=True)
class Settings:
    """The file's content; see its comments."""

    data: tuple[str, ...]
    prefer: tuple[str, ...]
    envelopes: Mapping[str, str]
    training_images: Mapping[str, int]
    pages: tuple[Page, ...]
    conclusions: Mapping[str, tuple[str, str]]
    findings: tuple[Finding, ...]
    methods: tuple[tuple[str, str, str], ...]
    together: Mapping[str, tuple[str, ...]]
    comparisons: tuple[tuple[str, str], ...]
    stacks: tuple[Stack, ...]
    targets: tuple[Mapping[str, Any], ...]
    pictures: tuple[Picture, ...]

    def page_of(self, study: str) -> Page | None:
        """The page that shows a study."""
        return next((page for page in self.pages if matches(study, page.studies)), None)

    def concerns(self, study: str) -> bool:
        """Whether a study is asked for, even before it has results."""
        return self.page_of(study) is not None

    def split_method(self, method: str) -> tuple[Stack, str]:
        """A method's base defence and its name without it; the longest affix counts."""
        by_length = sorted(self.stacks, key=lambda stack: -len(stack.prefix + stack.suffix))
        for stack in by_length:
            core = stack.core(method)
            if core is not None:
                return stack, core
        return PLAIN, method

    def defence_and_core(self, method: str) -> tuple[str, str]:
        """The same by the defence's name: ``sound_arl`` and ``arl_sound`` are one."""
        stack, core = self.split_method(method)
        return stack.name, core


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a study's name matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def read_settings(root: Path) -> Settings:
    """Read the file.

    Raises:
        ValueError: what is wrong with it, in one line.
    """
    file = root / SETTINGS
    tree = read_toml(file)
    unknown = sorted(set(tree) - set(_KEYS))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r} in {file}; there are: {', '.join(_KEYS)}")
    try:
        return Settings(
            data=tuple(tree.get("data", [])),
            prefer=tuple(tree.get("prefer", ["*"])),
            envelopes=dict(tree.get("envelopes", {})),
            training_images={str(data): int(count) for data, count in tree.get("training_images", {}).items()},
            pages=tuple(Page(p["name"], p["title"], p["title_zh"], tuple(p["studies"])) for p in tree.get("page", [])),
            conclusions={each["study"]: (each["words"], each["words_zh"]) for each in tree.get("conclusion", [])},
            findings=tuple(_finding(each) for each in tree.get("finding", [])),
            methods=tuple((each["name"], each["words"], each["words_zh"]) for each in tree.get("method", [])),
            together={group["name"]: tuple(group["studies"]) for group in tree.get("together", [])},
            comparisons=tuple((pair["a"], pair["b"]) for pair in tree.get("comparison", [])),
            stacks=tuple(_stack(stack) for stack in tree.get("stack", [])),
            targets=tuple(dict(target) for target in tree.get("target", [])),
            pictures=tuple(
                Picture(each["study"], each["seed"], each["comparison"], dict(each["methods"]))
                for each in tree.get("picture", [])
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{file}: an entry is incomplete or of the wrong kind: {error}") from None


def read_toml(file: Path) -> dict[str, Any]:
    """A TOML file as plain data; a ValueError names the file that cannot be read."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {file}: {error}") from None


def _finding(tree: Mapping[str, Any]) -> Finding:
    shown_by = tuple((e["study"], e["data"], e["comparison"], e["verdict"]) for e in tree["shown_by"])
    if not shown_by:
        raise TypeError(f"a finding needs a comparison that bears it, got {dict(tree)}")
    return Finding(tree["words"], tree["words_zh"], shown_by)


def _stack(tree: Mapping[str, str]) -> Stack:
    stack = Stack(tree["name"], tree.get("prefix", ""), tree.get("suffix", ""))
    if not stack.name or not stack.prefix + stack.suffix:
        raise TypeError(f"a stack needs a name and a prefix or a suffix, got {dict(tree)}")
    return stack
