"""The training loop, and its seam to clients that train, simulated or real."""
