"""A stand-in for Transformer Engine, on CPU, for tests: not Transformer Engine. See `tests.stand_ins`."""

from transformer_engine import common, pytorch

__all__ = ["common", "pytorch"]
__version__ = "2.18.0"
