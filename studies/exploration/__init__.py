"""Short trainings over many designs, each attacked: which surrogate, schedule and penalty lead where."""
