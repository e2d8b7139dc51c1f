"""The experiment of small leaderboards, and their tables."""

from itertools import takewhile

CONFIG = """
name = "small"
[data]
kind = "synthetic"
clients = 8
samples = 600
seed = 0
[model]
kind = "softmax"
[times]
compute = { kind = "exponential", mean = 1.0 }
upload = { kind = "exponential", mean = 1.0 }
[training]
cohort_size = 3
local_steps = 5
step_size = 0.02
schedule = "constant"
[stop]
target_loss = 1.9
max_rounds = 400
[presets.best.training]
link = "shared"
duplicates = "physical"
"""


def first_table(page):
    """Return the lines of a page's first table."""
    lines = page.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("| "))
    return list(takewhile(lambda line: line.startswith("|"), lines[start:]))
