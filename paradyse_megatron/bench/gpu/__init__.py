"""What only a GPU can show: that kernels and strategies are right on it, and how fast conversions are.

Every part takes the device, so that all but the speed is tested on the CPU.
"""
