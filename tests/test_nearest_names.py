from __future__ import annotations

from attention_cem.nearest_names import did_you_mean, nearest_names


def test_nearest_names__best_first_and_never_more_than_asked_for() -> None:
    known = ["features.7", "features.17", "features.70", "classifier"]
    assert nearest_names("features.7", known, limit=3)[0] == "features.7"
    assert len(nearest_names("features.7", known, limit=2)) == 2
    assert nearest_names("zzz", known) == [] and nearest_names("x", []) == []


def test_did_you_mean__names_the_nearest() -> None:
    assert did_you_mean("epoch", iter(["epochs", "batch_size"])) == "; did you mean 'epochs'?"
    assert did_you_mean("layer1", ["layer2", "layer3"], limit=3) == "; did you mean 'layer3' or 'layer2'?"


def test_did_you_mean__lists_what_there_is_where_nothing_is_near() -> None:
    assert did_you_mean("zzz", ["epochs", "batch_size"]) == "; known: 'epochs', 'batch_size'"
    assert did_you_mean("zzz", ["epochs"], otherwise=".") == "."
    many = did_you_mean("zzz", [f"layer {number}" for number in range(21)])
    assert many.count("layer") == 20 and many.endswith("'layer 19', …")
