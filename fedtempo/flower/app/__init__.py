"""The ready app: an experiment of a configuration file on Flower nodes."""
