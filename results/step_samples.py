"""Measured times of whole rounds: what one draft-and-verify round of a batch took in a live server."""

from __future__ import annotations

import math
from dataclasses import dataclass

from results.step_terms import RoundKind
from results.summary import CellSummary
from search_spaces.config import Triple


@dataclass(frozen=True, kw_only=True)
class StepSample:
    """One measurement. `batch` is the mean number of requests served at a time; `step_s` the time of one round.

    `variant` stands for everything else that may change the time, such as further flags.
    """

    batch: float
    triple: Triple
    tp_size: int
    step_s: float
    variant: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step_s) and self.step_s > 0 and math.isfinite(self.batch) and self.batch > 0):
            raise ValueError(f"not a step time: {self.step_s!r} s at a batch of {self.batch!r}")

    @property
    def kind(self) -> RoundKind:
        return RoundKind(batch=self.batch, triple=self.triple, tp_size=self.tp_size, variant=self.variant)


def step_sample(cell: CellSummary, triple: Triple, tp_size: int) -> StepSample | None:
    """The round time of a measured cell: requests in flight x duration / verify steps; None when something is missing.

    A verify step of a request is its part in one round of the batch, so verify steps / requests in flight is how many
    rounds the batch made. Prefills and idle ends are in the duration: what a user gets, not an isolated forward.
    """
    if not cell.verify_steps or not cell.mean_in_flight or cell.duration_s <= 0:
        return None
    step_s = cell.mean_in_flight * cell.duration_s / cell.verify_steps
    return StepSample(batch=cell.mean_in_flight, triple=triple, tp_size=tp_size, step_s=step_s)
