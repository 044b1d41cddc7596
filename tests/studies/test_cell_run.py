from attention_cem.studies.cell_run import images_of
from attention_cem.training import load_config

OPTIONS = {"size": 16, "num_train": 40, "num_test": 20, "num_classes": 4}


def test_images_of__cells_with_the_same_data_share_them() -> None:
    first = images_of(load_config(overrides={"data.options": OPTIONS, "train.seed": 0}))
    assert images_of(load_config(overrides={"data.options": OPTIONS, "train.seed": 1, "train.epochs": 9})) is first
    other = images_of(load_config(overrides={"data.options": {**OPTIONS, "num_train": 48}}))
    assert (len(first.train), len(other.train)) == (40, 48)


def test_images_of__a_limit_keeps_other_images_for_another_seed() -> None:
    limited = {"data.options": OPTIONS, "data.limit": 12}
    zero = images_of(load_config(overrides={**limited, "train.seed": 0})).train.images
    one = images_of(load_config(overrides={**limited, "train.seed": 1})).train.images
    assert len(zero) == len(one) == 12 and not zero.equal(one)
