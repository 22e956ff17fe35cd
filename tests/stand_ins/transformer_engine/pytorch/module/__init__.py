"""See `tests.stand_ins`."""
