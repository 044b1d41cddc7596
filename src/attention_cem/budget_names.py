"""What the budgets of an audit are called, weakest first; here, so that who asks need not import torch."""

BUDGETS = ("quick", "screening", "compact", "standard", "thorough")
