"""The boundary to Megatron: versions, arguments, the pre-training entry, patches."""
