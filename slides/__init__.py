"""The slides of a group meeting, made from the same figures and result files as the handbook."""
