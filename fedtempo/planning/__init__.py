"""What `fedtempo plan` does: forecasts for a fleet, as numbers (plan), text (tables) and a picture (plot)."""
