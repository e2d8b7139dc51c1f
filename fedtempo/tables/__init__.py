"""Tables and pages as values, and one small renderer for each medium."""
