"""The terms of some rounds and how the logarithm of a round's time follows from the parameters of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from results.step_terms import Floats, Form, RoundKind, term_matrix

Groups = tuple[tuple[int, str], ...]
"""(tp_size, variant) of the measured rounds, sorted."""


class Design:
    """The terms of some kinds, and where each parameter stands: one logarithm per term; then, per group beyond the
    first, a common factor and one factor per term. Kinds of an unknown group have the first group's coefficients."""

    def __init__(self, form: Form, groups: Groups, kinds: Sequence[RoundKind]) -> None:
        self.terms = term_matrix(form, kinds).reshape(len(kinds), len(form))
        numbers = {group: number for number, group in enumerate(groups)}
        self._number = np.array([numbers.get(kind.group, 0) for kind in kinds], dtype=np.int64)
        self.others = len(groups) - 1
        self.size = len(form) + self.others * (len(form) + 1)

    def evaluate(self, parameters: Floats) -> tuple[Floats, Floats]:
        """Logarithm of the time of each kind, and its gradient, [kinds, parameters]."""
        count, terms = self.terms.shape
        factors = np.zeros((self.others + 1, terms + 1))
        factors[1:] = parameters[terms:].reshape(self.others, terms + 1)
        logs = parameters[:terms] + (factors[:, :1] + factors[:, 1:])[self._number]
        parts = self.terms * np.exp(logs)
        total = parts.sum(axis=1)
        shares = parts / total[:, None]
        by_group = np.zeros((count, self.others + 1, terms + 1))
        by_group[np.arange(count), self._number, 0] = 1.0
        by_group[np.arange(count), self._number, 1:] = shares
        gradient: Floats = np.concatenate([shares, by_group[:, 1:].reshape(count, -1)], axis=1)
        return np.log(total), gradient
