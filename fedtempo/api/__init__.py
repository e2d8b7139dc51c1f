"""What Python users call: the whole tool on problems of their own."""
