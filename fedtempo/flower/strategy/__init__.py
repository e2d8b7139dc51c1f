"""The server's side: a strategy that lets policies decide, and what it exchanges with its clients."""
