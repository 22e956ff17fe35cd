"""What a run would take: static choices, Megatron's context parallelism and plans by length, on the same documents."""
