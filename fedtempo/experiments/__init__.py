"""Runs from configuration files: what is asked, what is run, what is recorded."""
