"""Tests of `paradyse_megatron.data`, on real .bin/.idx files."""
