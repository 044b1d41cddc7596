import numpy as np
import pytest
import torch
from scipy.fft import dctn

from attention_cem.data import Augment
from attention_cem.splitting import BlindInput


@pytest.mark.parametrize("frequencies", [1, 2, 5])
def test_blind_input__takes_out_the_slow_waves_and_nothing_else(frequencies):
    images = torch.rand(4, 3, 16, 12, dtype=torch.float64)
    before, after = (
        dctn(x.numpy(), axes=(2, 3), norm="ortho") for x in (images, BlindInput(16, 12, frequencies)(images))
    )
    assert abs(after[:, :, :frequencies, :frequencies]).max() < 1e-6
    before[:, :, :frequencies, :frequencies] = 0
    torch.testing.assert_close(torch.tensor(after), torch.tensor(before), atol=1e-6, rtol=0)


def test_blind_input__contrast_and_brightness_leave_no_trace():
    images = torch.rand(5, 3, 8, 8, dtype=torch.float64)
    blind = BlindInput(8, 8, 1, contrast=True)
    changed = 0.3 * images + torch.rand(5, 3, 1, 1, dtype=torch.float64)
    left, other = blind(images), blind(changed)
    # the small constant under the root is the only difference
    torch.testing.assert_close(left, other, atol=0.02, rtol=0)
    assert (BlindInput(8, 8, 1)(images) - BlindInput(8, 8, 1)(changed)).abs().max() > 0.1


def brightness_read(edges: str | None) -> float:
    """Share of the brightness of unseen images that is read, by size, in what a blind client sees of their crops."""
    generator = torch.Generator().manual_seed(0)
    bright = torch.rand(3000, 1, 1, 1, generator=generator)
    images = (0.2 + 0.5 * bright + 0.3 * torch.rand(3000, 1, 16, 16, generator=generator)) * 255
    augment = Augment(crop_padding=0 if edges is None else 2, flip=False, edges=edges or "black")
    left = BlindInput(16, 16, 4)(augment(images.round().to(torch.uint8), generator)).abs().flatten(1).numpy()
    seen = left - left.mean(0)
    wanted = (bright - bright.mean()).flatten().numpy()
    weight = np.linalg.lstsq(seen[:2000], wanted[:2000], rcond=None)[0]
    return float(1 - ((seen[2000:] @ weight - wanted[2000:]) ** 2).sum() / (wanted[2000:] ** 2).sum())


def test_blind_input__a_black_edge_shows_how_bright_an_image_is_and_a_mirrored_one_does_not():
    read = {edges: brightness_read(edges) for edges in (None, "mirrored", "black")}
    print(read)
    assert read["black"] > 0.5 and read["mirrored"] < 0.1 and read[None] < 0.1


def test_blind_input__full_precision_under_autocast():
    images = torch.rand(2, 3, 8, 8) + 100
    blind = BlindInput(8, 8, 2)
    with torch.autocast("cpu", torch.bfloat16):
        under = blind(images)
    assert under.dtype == torch.float32
    torch.testing.assert_close(under, blind(images), atol=0, rtol=0)


@pytest.mark.parametrize("frequencies", [0, -1, 8])
def test_blind_input__refuses_frequencies_that_do_not_fit(frequencies):
    with pytest.raises(ValueError, match=f"between 1 and 7 .* got {frequencies}"):
        BlindInput(8, 8, frequencies)


def test_blind_input__refuses_other_sizes():
    with pytest.raises(ValueError, match="8×8.*got"):
        BlindInput(8, 8, 1)(torch.rand(1, 3, 9, 8))
