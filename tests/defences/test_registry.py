import pytest

from attention_cem.defences import Defence, GaussianNoise, LocalDP, build_defence, register_defence


def test_build_defence__from_plain_data_and_from_a_description():
    defence = build_defence({"name": "local_dp", "epsilon": 2.0, "clip_norm": 1.0})
    assert isinstance(defence, LocalDP)
    assert build_defence(defence.describe()).describe() == defence.describe()


def test_build_defence__context_fills_only_what_is_asked_for_and_left_out():
    context = {"z_shape": [8, 4, 4], "image_shape": [3, 16, 16], "sigma": 0.5}
    assert build_defence({"name": "gaussian_noise", "sigma": 0.1}, context).config() == {"sigma": 0.1}
    built = build_defence({"name": "information_bottleneck", "weight": 0.1}, context)
    assert built.config()["z_shape"] == [8, 4, 4]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": "gaussian_nois", "sigma": 1.0}, "did you mean 'gaussian_noise'"),
        ({"name": "zzz"}, "unknown defence 'zzz'. Known: adversarial_inverter, channel_pruning"),
        ({"name": "gaussian_noise", "sigm": 1.0}, "no parameter 'sigm'; did you mean 'sigma'"),
        ({"name": "gaussian_noise", "self": 1.0}, "no parameter 'self'"),
        ({"name": "gaussian_noise"}, "gaussian_noise needs sigma, received nothing"),
        ({"sigma": 1.0}, "needs a 'name'"),
        ({"name": "dropout", "p": "half"}, "p must lie between 0 and 1.*'half'"),
        ({"name": "top_k_pruning", "keep": [0.5]}, "keep must lie above 0"),
        ({"name": "channel_pruning", "share": "half", "filters": {"0": 4}}, "share must lie between"),
        ({"name": "channel_pruning", "share": 0.5, "filters": {"0": 4}, "z_layer": [1]}, "z_layer must be one of 0"),
        ({"name": "local_dp", "epsilon": 2.0, "clip_norm": 1.0, "delta": "1e-6"}, "delta must be a finite number"),
        (
            {"name": "adversarial_inverter", "weight": 1.0, "z_shape": [4], "image_shape": [3, 8, 8], "threshold": "x"},
            "threshold must lie between",
        ),
    ],
)
def test_build_defence__says_what_is_wrong(config, message):
    with pytest.raises(ValueError, match=message):
        build_defence(config)


def test_register_defence__refuses_a_taken_name():
    class Impostor(Defence):
        name = "gaussian_noise"

    with pytest.raises(ValueError, match="'gaussian_noise' is already registered: GaussianNoise"):
        register_defence(Impostor)
    assert isinstance(build_defence({"name": "gaussian_noise", "sigma": 1.0}), GaussianNoise)
