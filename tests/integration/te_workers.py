"""As `tests.integration.workers`, where a stand-in for Transformer Engine can be imported; see `tests.stand_ins`."""

from tests import stand_ins

stand_ins.install()

from tests.integration.workers import refusals  # noqa: E402

__all__ = ["refusals"]
