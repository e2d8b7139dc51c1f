"""From an experiment to runs: the problem, planned runs, processes, and what makes two runs the same."""
