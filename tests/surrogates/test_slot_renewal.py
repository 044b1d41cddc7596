import torch

from attention_cem import SlotMixtureCEM


def test_slot_mixture__many_classes_are_renewed_in_turn_also_after_loading() -> None:
    torch.manual_seed(0)
    surrogate, loaded = (SlotMixtureCEM(4, 200, num_slots=2, bank_size=8, reseed_every=10_000) for _ in range(2))
    y = torch.arange(200).repeat(4)
    surrogate._step = 3  # no renewal of its own
    surrogate(torch.randn(800, 4), y)
    for first, last in ((0, 128), (128, 200)):
        surrogate.slot_mean[:200] = 1e3  # slots that any others explain the memory better than
        surrogate.maintain()
        renewed = (surrogate.slot_mean[:200].abs() < 100).all(-1).all(-1)
        assert renewed[first:last].all()
        loaded.load_state_dict(surrogate.state_dict())
        assert loaded._next_row == surrogate._next_row == (first + 128) % 200
    assert renewed[:56].all() and not renewed[56:128].any()
