"""See `tests.stand_ins`: the class by which Megatron tells quantised parameters. There are none here."""


class QuantizedTensor:
    """A name."""
