"""The bootstrap: what it cuts off, and that it draws in chunks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as exact

from results.stats.bootstrap import bootstrap, tail_probability


def test_the_cut_tail_is_wider_for_few_units_and_tends_to_the_plain_one() -> None:
    assert tail_probability(8, 0.95) == pytest.approx(exact.norm.cdf(-np.sqrt(8 / 7) * exact.t.ppf(0.975, 7)), rel=0.02)
    assert tail_probability(100_000, 0.95) == pytest.approx(0.025, rel=1e-3)


def test_resampling_in_chunks_gives_as_many_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("results.stats.bootstrap._CHUNK_CELLS", 100)
    seen = []
    bootstrap(lambda sums: seen.append(len(sums)) or sums[:, 0], np.ones((30, 1)), resamples=50)
    assert seen == [1, 50]
