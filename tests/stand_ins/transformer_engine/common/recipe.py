"""See `tests.stand_ins`: a name that Megatron subclasses. There is no fp8 here."""


class DelayedScaling:
    """A name."""
