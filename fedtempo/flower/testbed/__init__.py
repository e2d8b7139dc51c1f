"""A federation of real processes on one machine."""
