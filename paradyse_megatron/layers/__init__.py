"""Subclasses of megatron-core's layers that follow the current plan, and the specs that put them in a model."""
