"""One file a strategy."""
