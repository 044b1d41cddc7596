"""Studies: a matrix of runs, done once each wherever there is a machine, and the comparison of methods."""
