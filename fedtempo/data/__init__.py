"""Data of federated clients: drawn from a model, or read from image files and split among the clients."""
