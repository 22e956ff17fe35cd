"""The ways to compute attention, MLP and loss head in parallel; usable without Megatron."""
