"""Tests. A package, so that workers of multi-rank tests have importable names (`tests.cpu.test_cpu:function`)."""
