"""Polynomials of the sequence length, up to its square."""

from __future__ import annotations

from dataclasses import dataclass

Terms = tuple[float, float, float]


@dataclass(frozen=True)
class Polynomial:
    """constant + per_token * s + per_token_squared * s ** 2."""

    constant: float = 0.0
    per_token: float = 0.0
    per_token_squared: float = 0.0

    def __call__(self, seq_length: int) -> float:
        """Value at s = `seq_length`."""
        return self.constant + self.per_token * seq_length + self.per_token_squared * (seq_length * seq_length)

    def __add__(self, other: Polynomial) -> Polynomial:
        return Polynomial(*(mine + theirs for mine, theirs in zip(self.terms, other.terms, strict=True)))

    def __mul__(self, factor: float) -> Polynomial:
        return Polynomial(*(term * factor for term in self.terms))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Polynomial:
        return Polynomial(*(term / divisor for term in self.terms))

    def upper_bound(self, other: Polynomial) -> Polynomial:
        """Term by term the larger coefficient: nowhere below either, for coefficients that are not negative."""
        return Polynomial(*(max(mine, theirs) for mine, theirs in zip(self.terms, other.terms, strict=True)))

    def excess_over(self, other: Polynomial) -> Polynomial:
        """Term by term by how much this one is larger, or 0."""
        return Polynomial(*(max(mine - theirs, 0.0) for mine, theirs in zip(self.terms, other.terms, strict=True)))

    @property
    def terms(self) -> Terms:
        """The coefficients, by ascending power."""
        return self.constant, self.per_token, self.per_token_squared


NOTHING = Polynomial()
TOKENS = Polynomial(per_token=1.0)
TOKEN_PAIRS = Polynomial(per_token_squared=1.0)
