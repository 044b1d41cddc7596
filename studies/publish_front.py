"""The index of results, and the short block of the repository's front page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.publish_comparisons import ENOUGH_SEEDS
from studies.publish_figures import figure_name
from studies.publish_pages import HOW_MATCHED, studies_table
from studies.publish_reading import Experiment, Stale, StoredStudy
from studies.publish_settings import Settings
from studies.publish_stamps import BEGIN, END, block_of
from studies.publish_tables import comparisons_table, interval, table, targets_table

SHOWN = ("sound", "slots")
"""Methods of ours on the front page: the preset, and the attention-based surrogate by itself."""


def index_page(
    settings: Settings,
    studies: Sequence[StoredStudy],
    orphans: Sequence[Stale],
    comparisons: Mapping[str, Mapping[str, Any]],
    missing: Sequence[Mapping[str, str]],
    targets: Sequence[Mapping[str, Any]],
) -> str:
    """Where we stand, what there is, and how it is made."""
    pages = "\n".join(f"- [{page.title}]({page.name}.md) {page.title_zh}" for page in settings.pages)
    records = [record for by_key in comparisons.values() for record in by_key.values()]
    parts = [
        "# Results 结果",
        "Made by `make results` from the studies (`studies/*.toml`) and their stored results "
        "(`results/studies/<study>/<cell>.json`, written by `attention-cem study run`). No number is typed by hand; a "
        "result whose configuration is not a cell of its study file any more is listed and not used. A cell without a "
        "result takes that of an equal run, same configuration and attacks, of another study, which its row names.",
        f"{pages}\n- [Cost of training](cost.md) 训练开销\n"
        "- [The published CIFAR-10 table and our runs](paper-table.md) 与已发表结果对照\n"
        "- [Exploration: leads, not results](exploration.md) 探索\n"
        "- [summary.json](summary.json): all of it as plain data",
        "## Targets 目标\n\nGoals, not gates.",
        targets_table(targets),
    ]
    if settings.methods:
        parts.append("## Methods 方法")
        parts.append("\n".join(f"- **{name}**: {words}. {words_zh}。" for name, words, words_zh in settings.methods))
    parts.append("## MSE at equal accuracy 同准确率比较")
    if records:
        parts += [HOW_MATCHED, comparisons_table(records)]
    if missing:
        parts.append("Not there yet 尚缺：")
        parts.append(_missing_table(missing))
    parts += ["## Studies 研究", studies_table(studies)]
    stale = [*orphans, *(each for stored in studies for each in stored.stale)]
    if stale:
        parts += ["Results that are not used 未采用的结果", table(["file", "why"], ([s.file, s.reason] for s in stale))]
    return "\n\n".join(parts) + "\n"


def front_block(
    experiments: Sequence[Experiment],
    comparisons: Mapping[str, Mapping[str, Any]],
    targets: Sequence[Mapping[str, Any]],
    settings: Settings,
) -> str:
    """One table and one plot about the first data set, what the names mean, and how far the figures can be trusted."""
    title, data = "## Where we stand\n\n", settings.data[0]
    wanted = [record for record in comparisons.get(data, {}).values() if record["a"] in SHOWN]
    if not wanted:
        return f"{title}The studies are not run yet: [what is missing and how to make it](results/README.md).\n"
    rows = [
        [
            f"`{record['a']}` against `{record['b']}`",
            f"{100 * record['accuracy']:.1f}",
            _gain(record),
            interval(record["ci95"]),
            f"{record['ssim_a']:.2f} / {record['ssim_b']:.2f}",
            str(record["seeds"]),
        ]
        for record in wanted
    ]
    named = [each for each in experiments if each.name == wanted[0]["study"]]
    met, missed, open_ = (sum(target["met"] is state for target in targets) for state in (True, False, None))
    return (
        f"{title}Worst-case attack on {data} at equal accuracy: a higher MSE ratio is better for the first, "
        f"a lower SSIM is more private "
        f"([how measured, every figure](results/README.md); study `{wanted[0]['study']}`):\n\n"
        f"{table(['comparison', 'accuracy %', 'MSE ratio', '95 % interval', 'SSIM of each', 'seeds'], rows)}\n\n"
        + "".join(f"![Accuracy and MSE of every method on {data}]({figure_name(each, data)})\n\n" for each in named)
        + f"{_words(wanted, settings)}\n\n{_trust(wanted)}"
        + f"Of {len(targets)} targets {met} are met, {missed} are not, {open_} are open.\n"
    )


def _gain(record: Mapping[str, Any]) -> str:
    """The ratio; bold where enough seeds stand behind it."""
    told = f"{'≥ ' * record['at_least']}{record['mse_gain']:.2f}×"
    return f"**{told}**" if record["seeds"] >= ENOUGH_SEEDS else told


def _words(records: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """What the methods of a table are, a line each."""
    shown = {record[side] for record in records for side in ("a", "b")}
    lines = [f"- `{name}`: {words}" for name, words, _ in settings.methods if shown & set(name.split(", "))]
    lines += [f"- `{name}`: at each accuracy the best of all `{core}…`" for name, core in settings.envelopes.items()]
    return "\n".join(lines)


def _trust(records: Sequence[Mapping[str, Any]]) -> str:
    """What keeps the figures from being claims; nothing where nothing does."""
    words = ""
    if any(record["seeds"] < ENOUGH_SEEDS for record in records):
        words += f"Fewer than {ENOUGH_SEEDS} seeds are a lead and no claim. "
    budgets = sorted({budget for record in records for budget in record["budgets"]})
    if set(budgets) & {"quick", "screening"}:
        words += f"The attacks are those of a {' and '.join(budgets)} audit: they rank, a thorough one may find more. "
    return words


def _missing_table(missing: Sequence[Mapping[str, str]]) -> str:
    """Comparisons that are missing for the same reason, in one line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in missing:
        data, key = each["comparison"].split(".", 1)
        groups.setdefault((data, each["reason"]), []).append(key)
    rows = ([data, ", ".join(keys), reason] for (data, reason), keys in groups.items())
    return table(["data", "comparisons", "why"], rows)


def with_block(text: str, block: str) -> str:
    """The front page with its block replaced.

    Raises:
        ValueError: the markers are not there, once and in order.
    """
    if block_of(text) is None:
        raise ValueError(f"README.md needs the lines {BEGIN} and {END}, once each and in this order")
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    return f"{before}{BEGIN}\n{block}{after}"
