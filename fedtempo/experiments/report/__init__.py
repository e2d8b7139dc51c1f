"""Runs as one HTML page: what it says and shows as values, and the template that renders them."""
