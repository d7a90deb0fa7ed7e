"""All plots of a ranking as PNG images. Matplotlib is imported when one is drawn, with no display needed."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from typing import Any

from results.acceptance_plots import draw_layout_bars, draw_positions
from results.plot_style import open_axes
from results.ranking import Ranking
from results.throughput_plot import draw_scatter

logger = logging.getLogger(__name__)


def plots(ranking: Ranking) -> dict[str, bytes]:
    """Every plot that the ranking has data for, PNG by name; empty when nothing was measured.

    One that cannot be drawn is logged and left out: the others and all numbers do not depend on it.
    """
    drawn: dict[str, Callable[[Ranking, Any], bool]] = {
        "accept_length_and_throughput": draw_scatter,
        "layouts": draw_layout_bars,
        "acceptance_by_position": draw_positions,
    }
    images = {}
    for name, draw in drawn.items():
        try:
            with open_axes() as (figure, axes):
                if draw(ranking, axes):
                    buffer = io.BytesIO()
                    figure.savefig(buffer, format="png", metadata={"Software": None})
                    images[name] = buffer.getvalue()
        except Exception:
            logger.warning("the plot %s could not be drawn", name, exc_info=True)
    return images
