"""See `tests.stand_ins`."""

from transformer_engine.common import recipe

__all__ = ["recipe"]
