"""``attention-cem data list``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Print every known data set: found where, how large, how to get it."""
    parser = argparse.ArgumentParser(prog="attention-cem data", description="The data sets the program knows.")
    actions = parser.add_subparsers(dest="action", required=True)
    listing = actions.add_parser("list", help="say which data sets are found where, and how to get the rest")
    listing.add_argument("--root", help="folder with the data files; otherwise the variable ATTENTION_CEM_DATA")
    given = parser.parse_args(list(arguments))

    from attention_cem.data import data_root, describe_data

    root = data_root(given.root)
    if root is not None and not root.is_dir():
        print(f"attention-cem data: warning: the data folder {root} is not a folder", file=sys.stderr)
    for record in describe_data(given.root):
        counts = (record.num_train, record.num_test, record.num_classes)
        size = "size depends on the files" if None in counts else "{} train, {} test, {} classes".format(*counts)
        print(f"{record.name}: {size}")
        print(f"  found: {record.found}" if record.found else f"  not found. {record.how_to_get}")
    return 0
