"""Tests of `paradyse_megatron.cpu`."""
