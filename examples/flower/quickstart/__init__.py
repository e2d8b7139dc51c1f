"""A Flower app with PyTorch in which fedtempo decides who trains."""
