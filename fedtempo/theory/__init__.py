"""The mathematics: pure functions on arrays. ``docs/theory.md`` states and proves what they rely on."""
