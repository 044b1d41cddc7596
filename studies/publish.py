"""Tables, plots and ``summary.json`` of everything the studies found: ``make results``.

python -m studies.publish [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from studies.publish_stamps import stale_files

ROOT = Path(__file__).parents[1]


def stale_pages(root: Path) -> list[str]:
    """One line in words for every generated file under ``root`` that is missing, outdated or edited by hand.

    Judged by digests of study files, the configurations they build on and their results, which stand in the generated
    files themselves; imports nothing but the standard library.
    """
    return stale_files(root)


def publish(root: Path) -> list[str]:
    """Write everything; the files that were written, relative to ``root``.

    Raises:
        ValueError: a study, a result or the settings cannot be read; nothing was written.
    """
    # Here, so that asking for stale pages does not wait for them.
    from attention_cem.training.files import write_atomically
    from studies.publish_augmented import augmented_gain
    from studies.publish_benchmarks import cost_figures
    from studies.publish_comparisons import compare_experiment, headline, missing_of
    from studies.publish_cost import cost_page
    from studies.publish_figures import write_figure
    from studies.publish_front import front_block, with_block
    from studies.publish_index import index_page
    from studies.publish_pages import study_page
    from studies.publish_paper import paper_page
    from studies.publish_pictures import write_picture
    from studies.publish_questions import QUESTIONS, answers_to
    from studies.publish_reading import experiments_of, read_studies, unexplained
    from studies.publish_settings import read_settings
    from studies.publish_stamps import COST, FRONTS, INDEX, PAPER, SUMMARY, made_from, stamped_json, stamped_text
    from studies.publish_summary import summary_of
    from studies.publish_targets import targets_of

    settings, inputs = read_settings(root), made_from(root)
    studies = read_studies(root, settings)
    orphans = unexplained(root, studies)
    experiments = experiments_of(settings, studies)
    compared = [compare_experiment(each, settings) for each in experiments]
    comparisons = headline(compared, settings)
    answers = answers_to(QUESTIONS, compared, comparisons, settings.data[0])
    missing = missing_of(compared, settings, comparisons, studies)
    more_found = augmented_gain(root)
    targets = targets_of(root, settings, experiments, compared, comparisons, missing, more_found)
    cost = cost_figures(root)
    summary = summary_of(
        studies=studies,
        orphans=orphans,
        experiments=experiments,
        compared=compared,
        comparisons=comparisons,
        missing=missing,
        targets=targets,
        cost=cost,
        more_found=more_found,
    )
    by_name = {each.experiment: each for each in compared}
    pictures = {
        each.name: picture
        for asked in settings.pictures
        for each in experiments
        if each.name == asked.study and (picture := write_picture(root, asked, each, by_name[each.name])) is not None
    }
    pages = {page.file: study_page(page, settings, experiments, by_name, pictures) for page in settings.pages}
    about_cost = [target for target, asked in zip(targets, settings.targets, strict=True) if "cost_of" in asked]
    pages[COST] = cost_page(experiments, cost, about_cost)
    pages[PAPER] = paper_page(root, experiments)
    pages[INDEX] = index_page(settings, studies, orphans, answers, experiments, compared, comparisons, missing, targets)
    texts = {name: stamped_text(body, inputs[name]) for name, body in pages.items()}
    texts[SUMMARY] = stamped_json(summary, inputs[SUMMARY])
    for name, chinese in zip(FRONTS, (False, True), strict=True):
        block = front_block(experiments, compared, answers, targets, settings, pictures, more_found, chinese=chinese)
        texts[name] = with_block(
            (root / name).read_text(encoding="utf-8"), stamped_text(block, inputs[name]), name=name
        )
    drawn = [write_figure(root, settings, each, data) for each in experiments for data in each.data_sets()]
    for name, text in texts.items():
        write_atomically(root / name, text.encode())
    return [*drawn, *pictures.values(), *texts]


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or with ``--check`` say which are stale."""
    parser = argparse.ArgumentParser(prog="python -m studies.publish", description="Tables and plots of the studies.")
    parser.add_argument("--check", action="store_true", help="write nothing; say which pages are stale, exit 1 if any")
    asked = parser.parse_args(arguments)
    try:
        if asked.check:
            stale = stale_pages(ROOT)
            print("\n".join(stale) or "every page is up to date")
            return 1 if stale else 0
        print("\n".join(f"wrote {name}" for name in publish(ROOT)))
    except ValueError as error:
        print(f"results: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
