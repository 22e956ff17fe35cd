"""Small patches that let a Megatron-LM checkout's own scripts take --dynamic-parallel. Applied on request only."""
