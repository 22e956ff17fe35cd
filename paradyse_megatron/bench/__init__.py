"""Benchmarks behind `paradyse bench`: each compares alternatives side by side in one run and says on what machine."""
