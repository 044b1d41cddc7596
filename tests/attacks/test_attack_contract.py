from __future__ import annotations

from attention_cem.attacks import (
    Attack,
    ClassMeanAttack,
    GanInverterAttack,
    InverterAttack,
    NearestNeighbourAttack,
    OptimisationAttack,
    RidgeAttack,
    TrainingPlan,
)
from attention_cem.auditing.testing import AttackContract

PLAN = TrainingPlan(epochs=2, batch_size=16, lr=3e-3, weight_decay=0.0)


class TestClassMean(AttackContract):
    def make(self) -> Attack:
        return ClassMeanAttack()


class TestNearestNeighbour(AttackContract):
    def make(self) -> Attack:
        return NearestNeighbourAttack()


class TestRidge(AttackContract):
    def make(self) -> Attack:
        return RidgeAttack(random_features=16, most_inputs=64)


class TestInverter(AttackContract):
    def make(self) -> Attack:
        return InverterAttack(PLAN, width=8, blocks=0, restarts=2)


class TestInverterOnFlatFeatures(AttackContract):
    z_shape = (24,)

    def make(self) -> Attack:
        return InverterAttack(PLAN, width=8, blocks=0)


class TestInverterOnGreyTokens(AttackContract):
    z_shape = (16, 6)
    image_shape = (1, 16, 16)

    def make(self) -> Attack:
        return InverterAttack(PLAN, width=8, blocks=1)


class TestGanInverter(AttackContract):
    def make(self) -> Attack:
        return GanInverterAttack(PLAN, epochs=1, width=8, blocks=0)


class TestOptimisation(AttackContract):
    def make(self) -> Attack:
        return OptimisationAttack(steps=20, tv_weights=(0.0, 1e-3))
