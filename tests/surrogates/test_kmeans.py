import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from torch import Tensor

from attention_cem import ConditionalEntropySurrogate, KMeansCEM
from attention_cem.surrogates.clustering import cluster_classes, plus_plus_start
from attention_cem.testing import SurrogateContract
from attention_cem.testing.plain_loops import kmeans_loop
from tests.surrogates.helpers import LABELS, assert_equals_loop, features

FORMS = ["reference", "paper"]


class KMeansContract(SurrogateContract):
    form = "reference"

    def make(self) -> KMeansCEM:
        return KMeansCEM(6, num_classes=8, num_clusters=3, form=self.form)

    def warm_up(self, surrogate: ConditionalEntropySurrogate) -> None:
        surrogate.fit(*self.batch(60, 4, seed=7))

    def renamed(self, surrogate: ConditionalEntropySurrogate, z: Tensor, y: Tensor, names: dict[int, int]) -> Tensor:
        # labels are part of the fitted state: rename them there too (negation reverses their order)
        known = surrogate.class_label[:4].tolist()
        order = sorted(range(4), key=lambda i: names[known[i]])
        for buffer in (surrogate.centroid, surrogate.variance, surrogate.weight, surrogate.class_count):
            buffer[:4] = buffer[:4][order].clone()
        surrogate.class_label[:4] = torch.tensor(sorted(names[k] for k in known))
        return super().renamed(surrogate, z, y, names)


class TestKMeansReferenceContract(KMeansContract):
    form = "reference"


class TestKMeansPaperContract(KMeansContract):
    form = "paper"


@settings(deadline=None, max_examples=40)
@given(LABELS, st.integers(0, 5), st.sampled_from(FORMS))
def test_kmeans__equals_the_plain_loop(labels: list[int], seed: int, form: str) -> None:
    surrogate = KMeansCEM(5, num_classes=6, num_clusters=3, form=form).double()
    fitted, fitted_labels = features([-4, 0, 0, 3, 3] * 6 + [9], 5, 42)  # one class of one sample, one absent
    surrogate.fit(fitted, fitted_labels)
    assert_equals_loop(surrogate, kmeans_loop, *features(labels, 5, seed))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("labels", [[], [4], [4] * 5, list(range(9)), [1, 1, 2]])
def test_kmeans__equals_the_plain_loop_at_the_edges(form: str, labels: list[int]) -> None:
    surrogate = KMeansCEM(5, num_classes=9, num_clusters=3, form=form).double()
    surrogate.fit(*features([0, 1, 2, 4, 4, 4, 4] * 5, 5, 1))
    assert_equals_loop(surrogate, kmeans_loop, *features(labels, 5, 0))


def test_cluster_classes__equals_scikit_learn_from_the_same_start() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, dtype=torch.float64, generator=generator)
    row = torch.arange(300) % 3
    start = plus_plus_start(x, row, 3, 4, generator)
    clusters = cluster_classes(x, row, start, 100)
    for c in range(3):
        mine = x[row == c].numpy()
        expected = KMeans(4, init=start[c].numpy(), n_init=1, max_iter=500, tol=0).fit(mine)
        np.testing.assert_allclose(clusters.centroid[c].numpy(), expected.cluster_centers_, atol=1e-9)
        share = np.bincount(expected.labels_, minlength=4) / len(mine)
        np.testing.assert_allclose(clusters.weight[c].numpy(), share, atol=1e-12)
        spread = [mine[expected.labels_ == k].var(0) for k in range(4)]
        np.testing.assert_allclose(clusters.variance[c].numpy(), np.stack(spread), atol=1e-9)


def test_plus_plus_start__picks_distinct_samples_of_the_right_class() -> None:
    x = torch.arange(24, dtype=torch.float64)[:, None].expand(24, 2).contiguous()
    row = torch.arange(24) % 3
    start = plus_plus_start(x, row, 3, 5, torch.Generator().manual_seed(0))
    for c in range(3):
        values = start[c, :, 0].tolist()
        assert len(set(values)) == 5 and all(int(v) % 3 == c for v in values)


def test_plus_plus_start__finds_well_separated_modes() -> None:
    generator = torch.Generator().manual_seed(0)
    modes = 100 * torch.eye(4, dtype=torch.float64)
    x = modes[torch.arange(80) % 4] + 0.1 * torch.randn(80, 4, dtype=torch.float64, generator=generator)
    start = plus_plus_start(x, torch.zeros(80, dtype=torch.int64), 1, 4, generator)
    assert sorted(start[0].argmax(-1).tolist()) == [0, 1, 2, 3]


def test_kmeans__fewer_samples_than_clusters_and_identical_samples_work() -> None:
    surrogate = KMeansCEM(3, num_classes=3, num_clusters=5)
    z = torch.cat([torch.randn(2, 3), torch.ones(10, 3)])
    y = torch.tensor([0, 0] + [1] * 10)
    surrogate.fit(z, y)
    assert (surrogate.weight[0] > 0).sum() == 2 and (surrogate.weight[1] > 0).sum() == 1
    output = surrogate(z, y)
    assert torch.isfinite(output.rob_loss) and int(output.diagnostics["empty_clusters"]) == 7


def test_kmeans__a_dead_centroid_is_revived_at_the_next_fit() -> None:
    surrogate = KMeansCEM(2, num_classes=1, num_clusters=2)
    y = torch.zeros(40, dtype=torch.int64)
    near = torch.randn(40, 2)
    surrogate.fit(near, y)
    surrogate.centroid[0, 1] = 1e6
    moved = torch.cat([near[:20], near[20:] + 50])
    surrogate.fit(moved, y)
    torch.testing.assert_close(surrogate.weight[0].sort().values, torch.tensor([0.5, 0.5]))


def test_kmeans__warm_start_keeps_clusters_in_place() -> None:
    surrogate = KMeansCEM(2, num_classes=1, num_clusters=2)
    z, y = torch.cat([torch.randn(20, 2), torch.randn(20, 2) + 30]), torch.zeros(40, dtype=torch.int64)
    surrogate.fit(z, y)
    first = surrogate.centroid.clone()
    surrogate.fit(z + 0.01, y)
    torch.testing.assert_close(surrogate.centroid, first + 0.01, atol=1e-4, rtol=0)


def test_kmeans__paper_form_of_one_cluster_is_half_the_log_determinant() -> None:
    surrogate = KMeansCEM(3, num_classes=1, num_clusters=1, form="paper", reg_strength=0.5, blend=1e9).double()
    z, y = torch.randn(50, 3).double(), torch.zeros(50, dtype=torch.int64)
    surrogate.fit(z, y)
    covariance = torch.diag(z.var(0, correction=0))
    expected = 0.5 * (torch.logdet(covariance + 0.25 * torch.eye(3)) - torch.logdet(0.25 * torch.eye(3).double()))
    torch.testing.assert_close(surrogate(z, y).rob_loss, expected)


def test_kmeans__classes_that_were_never_fitted_are_counted_as_skipped() -> None:
    surrogate = KMeansCEM(3, num_classes=2)
    surrogate.fit(torch.randn(10, 3), torch.arange(10) % 2)
    output = surrogate(torch.randn(6, 3), torch.tensor([0, 0, 5, 5, 5, 6]))
    assert int(output.diagnostics["active_classes"]) == 1 and int(output.diagnostics["skipped_classes"]) == 2


def test_kmeans__fit_keeps_full_precision_under_autocast() -> None:
    # broke: a loop that calls fit in its autocast region clustered by distances rounded to bfloat16
    torch.manual_seed(0)
    z, y = torch.rand(64, 32), torch.arange(64) % 4
    plain, rounded = KMeansCEM(32, num_classes=4), KMeansCEM(32, num_classes=4)
    plain.fit(z, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded.fit(z, y)
    assert torch.equal(plain.centroid, rounded.centroid) and torch.equal(plain.variance, rounded.variance)


def test_kmeans__use_before_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="call fit"):
        KMeansCEM(3, num_classes=2)(torch.randn(4, 3), torch.arange(4) % 2)


def test_kmeans__too_many_classes_and_bad_features_are_refused() -> None:
    surrogate = KMeansCEM(3, num_classes=2)
    with pytest.raises(ValueError, match="3 different labels.*num_classes is 2"):
        surrogate.fit(torch.randn(6, 3), torch.arange(6) % 3)
    with pytest.raises(ValueError, match="not finite"):
        surrogate.fit(torch.full((6, 3), torch.nan), torch.arange(6) % 2)
    with pytest.raises(ValueError, match="at least one"):
        surrogate.fit(torch.randn(0, 3), torch.zeros(0, dtype=torch.int64))
