"""Training under a simulated wall clock: the loop, and the times that clients need in each round (channel)."""
