"""What is known of the coefficients of a round's time before anything was measured: sizes relative to a bare round.

A bare round is one verification by the target with nothing that grows. A draft of one layer takes the part of a
target's forward that one of its 10 to 30 layers takes, and a launch on top. A token to verify costs a tenth of a round
where arithmetic is dear (a CPU, a small model) and a thousandth where memory is (a GPU); a candidate of the draft,
which passes one layer instead of all, as many times less. How long a bare round takes nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from results.step_design import Design
from results.step_terms import Floats, Form

SHARES: Mapping[str, float] = {
    "round": 1.0,
    "draft_steps": 0.1,
    "requests": 0.03,
    "verify_tokens": 0.01,
    "draft_tokens": 0.003,
    "candidates": 0.0005,
}
"""Most probable size of each term's coefficient in bare rounds; terms above a knee are like those without one."""

SHARE_DEVIATION = 1.2
SCALE_DEVIATION = 3.0
GROUP_DEVIATION = 0.5
GROUP_TERM_DEVIATION = 0.3
"""Standard deviations of logarithms: of a share, of the bare round, of a TP size's common factor, of a factor for one
term."""


def shares(form: Form) -> Floats:
    """The most probable sizes of a form's coefficients, in bare rounds."""
    found: Floats = np.array([SHARES[name.partition("_above_")[0]] for name in form])
    return found


def prior(form: Form, design: Design, logs: Floats) -> tuple[Floats, Floats]:
    """Means and precision, [parameters] and [parameters, parameters], of rounds that took exp(`logs`)."""
    terms = len(form)
    sizes = shares(form)
    means = np.zeros(design.size)
    means[:terms] = np.log(sizes) + np.mean(logs - np.log(design.terms @ sizes))
    covariance = np.diag(np.full(design.size, GROUP_TERM_DEVIATION**2))
    covariance[:terms, :terms] = np.diag([0.1**2, *[SHARE_DEVIATION**2] * (terms - 1)]) + SCALE_DEVIATION**2
    at = np.arange(terms, design.size, terms + 1)
    covariance[at, at] = GROUP_DEVIATION**2
    return means, np.linalg.inv(covariance).astype(np.float64)
