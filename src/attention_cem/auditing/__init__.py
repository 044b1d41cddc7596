"""Challenge files, metrics, bounds, and the audit: the worst case over attacks that have receipts."""

from attention_cem.auditing.audit import audit
from attention_cem.auditing.budgets import BUDGETS, Budget, named_budget
from attention_cem.auditing.challenge_files import Answers, write_challenge
from attention_cem.auditing.fisher import fisher_leakage
from attention_cem.auditing.information import information_bounds, theorem2_leakage
from attention_cem.auditing.mixture import DiagonalMixture, fit_mixture
from attention_cem.auditing.observer import AuditObserver
from attention_cem.auditing.record import AUDIT_FILE, AUDIT_FORMAT, AUDIT_VERSION
from attention_cem.auditing.run_adapter import audit_run, challenge_from_run
from attention_cem.auditing.scores import Scores, bootstrap_ci, score

__all__ = [
    "AUDIT_FILE",
    "AUDIT_FORMAT",
    "AUDIT_VERSION",
    "BUDGETS",
    "Answers",
    "AuditObserver",
    "Budget",
    "DiagonalMixture",
    "Scores",
    "audit",
    "audit_run",
    "bootstrap_ci",
    "challenge_from_run",
    "fisher_leakage",
    "fit_mixture",
    "information_bounds",
    "named_budget",
    "score",
    "theorem2_leakage",
    "write_challenge",
]
