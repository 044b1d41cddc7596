"""Attacks on released features. Each reads a challenge folder, nothing else, and leaves a receipt."""

from attention_cem.attacks.base import Attack, AttackResult, Progress
from attention_cem.attacks.baselines import ClassMeanAttack, NearestNeighbourAttack
from attention_cem.attacks.challenge import Challenge, MembershipCandidates
from attention_cem.attacks.gan import GanInverterAttack
from attention_cem.attacks.inverter import InverterAttack
from attention_cem.attacks.inverter_training import TrainingPlan
from attention_cem.attacks.membership import MembershipResult, membership_attack
from attention_cem.attacks.optimisation import OptimisationAttack
from attention_cem.attacks.receipts import CurvePoint, Receipt
from attention_cem.attacks.ridge import RidgeAttack
from attention_cem.attacks.sealed_folder import SealBrokenError

__all__ = [
    "Attack",
    "AttackResult",
    "Challenge",
    "ClassMeanAttack",
    "CurvePoint",
    "GanInverterAttack",
    "InverterAttack",
    "MembershipCandidates",
    "MembershipResult",
    "NearestNeighbourAttack",
    "OptimisationAttack",
    "Progress",
    "Receipt",
    "RidgeAttack",
    "SealBrokenError",
    "TrainingPlan",
    "membership_attack",
]
