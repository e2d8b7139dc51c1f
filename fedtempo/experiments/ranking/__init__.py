"""Each policy at its own best settings, and policies ranked by that."""
