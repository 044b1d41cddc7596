from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from attention_cem.splitting import get_backbone, list_cuts, split


class Small(nn.Module):
    """Parts that the subclasses put together in ways that cannot be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.third = nn.Linear(4, 4)


class Branching(Small):
    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if x.sum() > 0:
            x = self.second(x)
        return self.third(x)


class Counting(Small):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(int(x.max())):
            x = self.first(x)
        return x


class Repeating(Small):
    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.first(self.first(x)))


class Tied(Small):
    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(self.first(x)) @ self.first.weight)


class Residual(Small):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        return self.third(hidden + self.second(hidden).relu())


class FromInput(Small):
    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.first(x) + x.abs())


class TwoInputs(Small):
    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        return self.first(x) + context


class TrainOnly(Small):
    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x))
        return self.third(x) if self.training else x


class Noisy(Small):
    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.second(x + torch.randn_like(x))


class FreshConstant(Small):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x) + torch.randn(4))


class Sideways(Small):
    def forward(self, x: Tensor) -> Tensor:
        self.kept = self.second(x)
        return self.third(self.first(x))


@pytest.mark.parametrize(
    ("model", "at", "message"),
    [
        (
            Branching(),
            "first",
            r"data-dependent control flow at test_split_errors.py:\d+ in forward: `if x.sum\(\)",
        ),
        (Counting(), "first", r"at test_split_errors.py:\d+ in forward: `for _ in range\(int\(x.max"),
        (Repeating(), "first", "'first' is called 2 times"),
        (Repeating(), "second", "'second' is never called"),
        (Repeating(), "thrid", "Repeating has no layer 'thrid'; did you mean 'third'"),
        (Repeating(), "third", "'third' is the model's last: nothing is left for the server"),
        (Repeating(), "", "cannot cut behind the whole model"),
        (Tied(), "second", r"'first.weight' would belong to both halves"),
        (
            Residual(),
            "second",
            r"the output of 'first' would have to pass to the server .*Cut at 'first' instead",
        ),
        (FromInput(), "first", r"the input 'x' would have to pass .*No layer of this model can be cut"),
        (TwoInputs(), "first", r"needs the inputs \['x', 'context'\]"),
        (TrainOnly(), "first", "calls different layers in training and in evaluation"),
        (FreshConstant(), "first", "makes a tensor that differs from call to call"),
        (Sideways(), "second", "output does not depend on layer 'second'"),
    ],
)
def test_split__obstacle_is_named(model, at, message):
    with pytest.raises(ValueError, match=message):
        split(model, at=at)


def test_split__crossing_skip_suggests_cuts_around_the_block():
    model = get_backbone("resnet20").build(10, (3, 32, 32))
    with pytest.raises(ValueError, match=r"the output of 'stage1' would .* Cut at 'stage1.2' or 'stage2.0' instead"):
        split(model, at="stage2.0.conv1")
    for name in ("stage1.2", "stage2.0"):
        split(model, at=name, example=torch.zeros(1, 3, 32, 32))


def test_split__random_forward_is_caught_by_the_example():
    split(Noisy(), at="first")
    with pytest.raises(ValueError, match="do not reproduce the whole model in eval mode"):
        split(Noisy(), at="first", example=torch.ones(2, 4))


@dataclass
class Answer:
    logits: Tensor


class Structured(Small):
    def forward(self, x: Tensor) -> Answer:
        return Answer(self.second(self.first(x)))


def test_split__a_result_that_cannot_be_compared_is_named() -> None:
    # broke: TypeError "No comparison pair was able to handle inputs of type"
    with pytest.raises(ValueError, match=r"Structured returns a Answer.*tensor"):
        split(Structured(), at="first", example=torch.randn(2, 4))


def test_list_cuts__says_why_when_there_is_none():
    with pytest.raises(ValueError, match=r"Branching has no layer to cut at: .*data-dependent control flow"):
        list_cuts(Branching(), torch.ones(2, 4))


class ByInputSize(Small):
    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[0]
        return self.third(self.first(x).view(size, -1))


class ByInputSizeCalled(Small):
    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.first(x).view(x.size(0), -1))


@pytest.mark.parametrize("model", [ByInputSize(), ByInputSizeCalled()])
def test_split__a_size_taken_from_the_input_is_told_from_a_skip_connection(model: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"'x' would have to pass.*only its size is asked for.*\.flatten\(1\)"):
        split(model, at="first")
    with pytest.raises(ValueError, match="a skip connection crosses the cut"):
        split(FromInput(), at="first")


@pytest.mark.parametrize("at", [0, None])
def test_split__a_layer_is_named_by_text(at: object) -> None:
    with pytest.raises(ValueError, match=rf"at must be the name of a layer.*got {at}"):
        split(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), at=at)  # type: ignore[arg-type]


@pytest.mark.parametrize("at", ["0", "_orig_mod.0"])
def test_split__a_compiled_model_is_refused_with_the_way_to_compile_the_halves(at: str) -> None:
    compiled = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
    with pytest.raises(ValueError, match="cut the model itself, then compile the halves"):
        split(compiled, at=at)
    with pytest.raises(ValueError, match="cut the model itself, then compile the halves"):
        list_cuts(compiled, torch.zeros(2, 4))
