"""Plans as values, the peak-memory rule and the search for a plan. Integers and numpy only."""


def backend() -> str:
    """The language that plans are searched for in here: "cpp", or "python" where the extension is not built."""
    from paradyse_megatron.planner import backends

    return backends.backend()
