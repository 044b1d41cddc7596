import pytest
import torch
from torch import nn

from attention_cem.defences import ChannelPruning, DefenceStack, build_stack, model_context, prunable_filters
from attention_cem.defences.testing import DefenceContract


def small_client() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, padding=1)]
    return nn.Sequential(*layers)


class TestChannelPruning(DefenceContract):
    def make(self):
        client = small_client()
        defence = ChannelPruning(prunable_filters(client), share=0.5, z_layer="3")
        defence.begin_epoch(0, client, torch.optim.SGD(client.parameters(), lr=0.1))
        return defence


class TestChannelPruningOfWeightsOnly(DefenceContract):
    def make(self):
        return ChannelPruning({"0": 16}, share=0.25, start_epoch=3, end_epoch=9)


def train_steps(client, stack, optimizer, steps):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.rand(4, 3, 6, 6, generator=generator)
        optimizer.zero_grad()
        (stack(client(x)) - x.mean(1, keepdim=True)).square().sum().backward()
        optimizer.step()
        stack.after_step(client, optimizer)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=5e-4, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=5e-4),
}


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_channel_pruning__pruned_weights_and_their_momentum_stay_exactly_zero(kind):
    client = small_client()
    optimizer = OPTIMIZERS[kind](client.parameters())
    stack = DefenceStack([ChannelPruning(prunable_filters(client), 0.5, start_epoch=1, end_epoch=1)])
    stack.begin_epoch(0, client, optimizer)
    train_steps(client, stack, optimizer, 5)
    assert all(bool((parameter != 0).any(dim=0).all()) for parameter in (client[0].weight, client[3].weight))
    strongest = client[0].weight.detach().flatten(1).norm(dim=1).argsort()[8:].sort().values

    stack.begin_epoch(1, client, optimizer)
    kept = stack.defences["channel_pruning"].kept("0")
    assert torch.equal(kept.nonzero().flatten(), strongest)
    # What the optimiser knows about the surviving filters is not touched by the pruning.
    state = {key: value for key, value in optimizer.state[client[0].weight].items() if value.dim() > 0}
    assert state
    assert all(bool((value[kept] != 0).all()) for value in state.values())

    for _ in range(5):
        train_steps(client, stack, optimizer, 2)
        for layer in ("0", "3"):
            pruned = ~stack.defences["channel_pruning"].kept(layer)
            for parameter in client.get_submodule(layer).parameters():
                assert (parameter[pruned] == 0).all()
                assert (parameter[~pruned] != 0).any()
                for value in optimizer.state[parameter].values():
                    if value.shape == parameter.shape:
                        assert (value[pruned] == 0).all()
    assert int(stack.defences["channel_pruning"].kept("0").sum()) == 8


def test_channel_pruning__surviving_filters_train_as_in_a_client_built_without_the_pruned_ones():
    # One layer and a loss that sums over channels: channels do not meet, so a smaller client is the oracle.
    torch.manual_seed(0)
    client = nn.Sequential(nn.Conv2d(3, 8, 3))
    make = OPTIMIZERS["sgd"]
    optimizer = make(client.parameters())
    defence = ChannelPruning({"0": 8}, share=0.5, z_layer="0")
    defence.begin_epoch(0, client, optimizer)
    kept = defence.kept("0")
    small = nn.Sequential(nn.Conv2d(3, 4, 3))
    small[0].weight.data = client[0].weight.data[kept].clone()
    small[0].bias.data = client[0].bias.data[kept].clone()
    small_optimizer = make(small.parameters())
    x = torch.rand(4, 3, 6, 6)
    for _ in range(10):
        for model, optim in ((client, optimizer), (small, small_optimizer)):
            optim.zero_grad()
            z = defence(model(x)) if model is client else model(x)
            (z - 1).square().sum().backward()
            optim.step()
        defence.after_step(client, optimizer)
    torch.testing.assert_close(client[0].weight[kept], small[0].weight)
    torch.testing.assert_close(client[0].bias[kept], small[0].bias)


def test_channel_pruning__zeroes_the_matching_channels_of_z():
    client = small_client()
    stack = DefenceStack([ChannelPruning(prunable_filters(client), share=0.5, z_layer="3")])
    stack.begin_epoch(0, client, torch.optim.SGD(client.parameters(), lr=0.1))
    kept = stack.defences["channel_pruning"].kept("3")
    z = torch.rand(2, 8, 4, 4) + 1
    released = stack.eval()(z)
    assert (released[:, ~kept] == 0).all()
    assert torch.equal(released[:, kept], z[:, kept])
    assert int(kept.sum()) == 4


def test_channel_pruning__follows_the_schedule_and_never_revives_a_filter():
    client = small_client()
    optimizer = torch.optim.SGD(client.parameters(), lr=0.1)
    defence = ChannelPruning({"0": 16}, share=0.75, start_epoch=1, end_epoch=4)
    counts, previous = [], torch.ones(16, dtype=torch.bool)
    for epoch in range(6):
        defence.begin_epoch(epoch, client, optimizer)
        kept = defence.kept("0").clone()
        assert not (kept & ~previous).any()
        defence.begin_epoch(epoch, client, optimizer)
        assert torch.equal(kept, defence.kept("0"))
        counts.append(int((~kept).sum()))
        previous = kept
        with torch.no_grad():
            client[0].weight += torch.randn_like(client[0].weight)
    # 16 · 0.75 · (1 − (1 − t)³) at t = 0, 1/3, 2/3, 1
    assert counts == [0, 0, 8, 12, 12, 12]


def test_channel_pruning__always_leaves_one_filter():
    client = nn.Sequential(nn.Linear(3, 2))
    defence = ChannelPruning({"0": 2}, share=0.99)
    defence.begin_epoch(0, client, torch.optim.SGD(client.parameters(), lr=0.1))
    assert int(defence.kept("0").sum()) == 1


def test_channel_pruning__resumes_from_its_state():
    client = small_client()
    optimizer = torch.optim.SGD(client.parameters(), lr=0.1)
    stack = build_stack([{"name": "channel_pruning", "share": 0.5}], model_context(client, (8, 6, 6)))
    stack.begin_epoch(0, client, optimizer)
    again = build_stack(stack.describe()["defences"])
    again.load_state_dict(stack.state_dict())
    z = torch.rand(2, 8, 6, 6)
    assert torch.equal(stack(z), again(z))
    assert int((stack(z)[0].abs().sum((1, 2)) == 0).sum()) == 4


def test_channel_pruning__refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="share must lie between 0 and 1"):
        ChannelPruning({"0": 4}, share=1.0)
    with pytest.raises(ValueError, match="at least one layer"):
        ChannelPruning({}, share=0.5)
    with pytest.raises(ValueError, match="z_layer must be one of 0"):
        ChannelPruning({"0": 4}, share=0.5, z_layer="1")
    with pytest.raises(ValueError, match="end_epoch must be a whole number of at least 3"):
        ChannelPruning({"0": 4}, share=0.5, start_epoch=3)
    with pytest.raises(ValueError, match="4 channels on axis 1"):
        ChannelPruning({"0": 4}, share=0.5, z_layer="0")(torch.zeros(2, 5))
    client = nn.Sequential(nn.Linear(3, 5))
    with pytest.raises(ValueError, match="layer 0 must have 4 filters, the client has 5"):
        ChannelPruning({"0": 4}, share=0.5).begin_epoch(0, client, torch.optim.SGD(client.parameters(), lr=1))
