"""Studies: what was run, and how its pages are made."""
