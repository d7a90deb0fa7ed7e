"""Verify steps that traces predict for a prompt, beside those that a measurement took for it. Pure.

One request at a time they should be equal to the unit; with more at once numerics of other batches may part them. A
difference beyond that means that the traces are not of what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.observations import RequestRow
from results.records import TrialRecord
from results.request_table import CellKey
from results.round_disagreements import (
    Disagreement,
    OtherLength,
    RequestRounds,
    disagreement_sentence,
    disagreements,
    first_to_part,
    load_of,
    other_length_sentence,
    parting,
)
from results.surface import SurfacePoint
from results.traced_points import Points
from results.traces import trace_flags
from search_spaces.config import Taps, Triple, layout_label

TOLERATED_ROUNDS = 0.05
"""The relative difference in verify steps from which on a setting counts as mispredicted."""
MAX_MISPREDICTED = 3
"""So many mispredicted settings, and accept lengths from the traces are not believed any more."""


@dataclass(frozen=True, kw_only=True)
class RoundsCheck:
    """One measured load of one trial. `equal_prompts` of `prompts` took exactly the predicted verify steps.

    `prompts` are those whose answer is as long as the traced one; of `other_length` more the trace does not say the
    verify steps. `disagreements` lists those that took other verify steps, the furthest off first, and `other_lengths`
    those of another length, the first to part first; not all of them where they are many.
    """

    trial_id: str
    layout: Taps
    triple: Triple
    tp_size: int
    load: CellKey
    prompts: int
    equal_prompts: int
    predicted: int
    measured: int
    disagreements: tuple[Disagreement, ...] = ()
    other_length: int = 0
    other_lengths: tuple[OtherLength, ...] = ()

    @property
    def relative_error(self) -> float:
        """0 where no answer is as long as the traced one."""
        return self.measured / self.predicted - 1 if self.prompts else 0.0

    @property
    def is_off(self) -> bool:
        return abs(self.relative_error) > TOLERATED_ROUNDS

    @property
    def words(self) -> str:
        return f"layout {layout_label(self.layout)} {self.triple} tp {self.tp_size}"

    def to_json(self) -> dict[str, Any]:
        return {
            "trial": self.trial_id,
            "layout": layout_label(self.layout),
            "num_steps": self.triple.num_steps,
            "eagle_topk": self.triple.eagle_topk,
            "num_draft_tokens": self.triple.num_draft_tokens,
            "tp_size": self.tp_size,
            "concurrency": self.load[0],
            "request_rate": self.load[1],
            "prompts": self.prompts,
            "equal_prompts": self.equal_prompts,
            "predicted": self.predicted,
            "measured": self.measured,
            "disagreements": [one.to_json() for one in self.disagreements],
            "other_length": self.other_length,
            "other_lengths": [one.to_json() for one in self.other_lengths],
        }


def check_rounds(
    record: TrialRecord, rows: Mapping[CellKey, Sequence[RequestRow]], points: Points
) -> tuple[RoundsCheck, ...]:
    """One check per load; none for a trial that no trace of its flags covers, or that was sent no traced prompt."""
    config = record.effective
    if not record.ok or config.layout is None or config.triple is None:
        return ()
    point = points.get((config.layout, config.triple))
    if point is None or point.flags != trace_flags(config.flags):
        return ()
    found = ((load, *_held(requests, point)) for load, requests in rows.items())
    return tuple(
        RoundsCheck(
            trial_id=record.trial_id,
            layout=config.layout,
            triple=config.triple,
            tp_size=config.tp_size,
            load=load,
            prompts=len(pairs),
            equal_prompts=sum(pair.predicted == pair.measured for pair in pairs),
            predicted=sum(pair.predicted for pair in pairs),
            measured=sum(pair.measured for pair in pairs),
            disagreements=disagreements(pairs),
            other_length=len(others),
            other_lengths=first_to_part(others),
        )
        for load, pairs, others in found
        if pairs or others
    )


def _held(requests: Sequence[RequestRow], point: SurfacePoint) -> tuple[list[RequestRounds], list[OtherLength]]:
    """Traced requests that succeeded: those whose answer is as long as the traced one, and the others."""
    texts = point.texts or ((),) * len(point.prompt_ids)
    whole = zip(point.prompt_ids, point.tokens_by_prompt, point.rounds_by_prompt, texts, strict=True)
    traced = {prompt: (tokens, rounds, text) for prompt, tokens, rounds, text in whole}
    paired, others = [], []
    for row in requests:
        known = traced.get(row.prompt_id)
        if known is None or row.error is not None:
            continue
        tokens, rounds, text = known
        if row.completion_tokens != tokens:
            others.append(
                OtherLength(
                    prompt_id=row.prompt_id,
                    traced=tokens,
                    tokens=row.completion_tokens,
                    first_difference=parting(text, row.output_ids),
                )
            )
        elif row.verify_steps is not None:
            paired.append(
                RequestRounds(
                    prompt_id=row.prompt_id,
                    predicted=rounds,
                    measured=row.verify_steps,
                    traced_text=text,
                    text=row.output_ids,
                )
            )
    return paired, others


def rounds_problem(checks: Sequence[RoundsCheck]) -> str | None:
    """Why accept lengths from traces are not to be believed, in one line; None as long as few settings are off."""
    off = [check for check in checks if check.is_off]
    settings = {(check.layout, check.triple, check.tp_size) for check in off}
    if len(settings) < MAX_MISPREDICTED:
        return None
    worst = max(off, key=lambda check: abs(check.relative_error))
    return (
        f"{len(settings)} settings took other verify steps than their traces say by more than {TOLERATED_ROUNDS:.0%}, "
        f"{worst.words} {worst.relative_error:+.0%}"
    )


def rounds_sentences(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What a report says of rows of `RoundsCheck.to_json`; nothing without one."""
    told = (_accuracy(rows), disagreement_sentence(rows), other_length_sentence(rows))
    return tuple(text for text in told if text is not None)


def _accuracy(rows: Sequence[Mapping[str, Any]]) -> str | None:
    compared = [row for row in rows if row["prompts"]]
    if not compared:
        return None
    equal, prompts = (sum(row[name] for row in compared) for name in ("equal_prompts", "prompts"))
    worst = max(compared, key=lambda row: abs(row["measured"] / row["predicted"] - 1))
    error = worst["measured"] / worst["predicted"] - 1
    text = f"search by surface: {equal} of {prompts} requests took exactly the verify steps that the traces say"
    if error:
        text += (
            f"; at most {error:+.1%} in one measurement (layout {worst['layout']} ({worst['num_steps']},"
            f"{worst['eagle_topk']},{worst['num_draft_tokens']}) tp {worst['tp_size']}, {load_of(worst)})"
        )
    return text
