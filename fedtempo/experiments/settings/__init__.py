"""What an experiment is, and how it is read from a file."""
