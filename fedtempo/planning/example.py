"""The fleet that `fedtempo init` writes, to plan at once."""

from pathlib import Path


def example_fleet() -> str:
    """Return the example fleet as CSV."""
    return Path(__file__).with_name("fleet.csv").read_text(encoding="utf-8")
