import numpy as np
import pytest
import scipy.fft
import torch

from attention_cem.data import mse_by_waves, mse_per_image, wave_bands
from attention_cem.splitting.blind_input import BlindInput


@pytest.mark.parametrize(("height", "width"), [(32, 32), (16, 24), (5, 3), (64, 64)])
def test_mse_by_waves__equals_scipys_transform_and_adds_up_to_the_mse(height: int, width: int) -> None:
    torch.manual_seed(0)
    a, b = torch.rand(3, 3, height, width), torch.rand(3, 3, height, width)
    found = mse_by_waves(a, b)
    energy = scipy.fft.dctn((a - b).double().numpy(), axes=(-2, -1), norm="ortho") ** 2
    number = np.maximum(np.arange(height)[:, None], np.arange(width)[None, :])
    bands = wave_bands(height, width)
    for column, band in enumerate(bands):
        first, last = map(int, band.split("-"))
        inside = (number >= first) & (number <= last)
        expected = energy[..., inside].sum(-1).mean(1) / (height * width)
        torch.testing.assert_close(found[:, column].double(), torch.from_numpy(expected), rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(found.sum(1), mse_per_image(a, b))
    assert found.shape == (3, len(bands))


def test_mse_by_waves__what_a_blind_client_does_not_see_is_the_first_band() -> None:
    torch.manual_seed(0)
    images = torch.rand(4, 3, 32, 32)
    seen = BlindInput(32, 32, frequencies=4)(images)
    left = mse_by_waves(images, seen)
    assert (left[:, 1:] < 1e-9).all()
    torch.testing.assert_close(left[:, 0], mse_per_image(images, seen))


def test_mse_by_waves__other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="expected two image batches of one shape"):
        mse_by_waves(torch.zeros(1, 3, 8, 8), torch.zeros(1, 3, 8, 9))
