"""Requests that took other verify steps than their traces say: how many, and from where on their text is another. Pure.

Another text is another way through the tree: a batch of another size may part two candidates that are nearly equal.
The same text with other verify steps says that the draft proposed something else. Of an answer of another length the
trace does not say the verify steps: there only the texts can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from results.loads import load_words
from results.output_identity import first_divergence

MAX_LISTED = 10
"""So many are listed of one measured load, those that are off by the most first."""

Text = Literal["same", "other", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """One request. `first_difference` is the first position of the answer (from 0) at which the measured text is not
    the traced one; None for the same text, and where one of the two is not known."""

    prompt_id: str
    predicted: int
    measured: int
    text: Text
    first_difference: int | None

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class OtherLength:
    """One request whose answer has `tokens`, and `traced` in its trace. `first_difference` as that of a `Disagreement`:
    where one text is the beginning of the other, the position at which it ends."""

    prompt_id: str
    traced: int
    tokens: int
    first_difference: int | None

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class RequestRounds:
    """One request's verify steps and answer (token ids, empty where not known), by its trace and as measured."""

    prompt_id: str
    predicted: int
    measured: int
    traced_text: Sequence[int]
    text: Sequence[int]

    @property
    def disagreement(self) -> Disagreement:
        first = parting(self.traced_text, self.text)
        text: Text = "unknown" if not self.traced_text or not self.text else "same" if first is None else "other"
        return Disagreement(
            prompt_id=self.prompt_id,
            predicted=self.predicted,
            measured=self.measured,
            text=text,
            first_difference=first,
        )


def parting(traced: Sequence[int], text: Sequence[int]) -> int | None:
    """The first position at which two texts differ, one being shorter included; None for the same text, and where one
    of the two is not known (empty)."""
    return first_divergence(traced, text) if traced and text else None


def disagreements(requests: Iterable[RequestRounds]) -> tuple[Disagreement, ...]:
    """Of those whose verify steps differ the `MAX_LISTED` that are off by the most."""
    off = [request for request in requests if request.predicted != request.measured]
    off.sort(key=lambda request: (-abs(request.measured - request.predicted), request.prompt_id))
    return tuple(request.disagreement for request in off[:MAX_LISTED])


def first_to_part(requests: Iterable[OtherLength]) -> tuple[OtherLength, ...]:
    """The `MAX_LISTED` whose texts part first; those of which a text is not known come last."""
    unknown = float("inf")

    def place(one: OtherLength) -> tuple[float, str]:
        return unknown if one.first_difference is None else one.first_difference, one.prompt_id

    return tuple(sorted(requests, key=place)[:MAX_LISTED])


def load_of(row: Mapping[str, Any]) -> str:
    """The load of a row of `RoundsCheck.to_json` in words."""
    return load_words((row["concurrency"], row["request_rate"]))


def disagreement_sentence(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """One sentence on rows of `RoundsCheck.to_json`; None where every request took the predicted verify steps."""
    off = sum(row["prompts"] - row["equal_prompts"] for row in rows)
    found = [(row, one) for row in rows for one in row.get("disagreements", ())]
    if not off or not found:
        return None
    same, other = (sum(one["text"] == text for _, one in found) for text in ("same", "other"))
    which = f"of the {len(found)} in search.json" if len(found) < off else "of them"
    row, worst = max(found, key=lambda pair: abs(pair[1]["measured"] - pair[1]["predicted"]))
    where = {
        "same": "the same text",
        "other": f"another text from position {worst['first_difference']} on",
        "unknown": "a text that is not known",
    }[worst["text"]]
    return (
        f"search by surface: {off} request{'' if off == 1 else 's'} took other verify steps than the traces say; "
        f"{which} {same} gave the traced text and {other} another one; the furthest off is prompt "
        f"{worst['prompt_id']} in trial {row['trial']} at {load_of(row)} ({worst['predicted']} predicted, "
        f"{worst['measured']} measured, {where})"
    )


def other_length_sentence(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """One sentence on answers that are not as long as the traced ones; None where all are."""
    count = sum(row.get("other_length", 0) for row in rows)
    if not count:
        return None
    text = (
        f"search by surface: {count} answer{'' if count == 1 else 's'} had another length than the traced "
        f"{'one' if count == 1 else 'ones'}, so the traces do not say their verify steps"
    )
    parted = [(row, one) for row in rows for one in row["other_lengths"] if one["first_difference"] is not None]
    if not parted:
        return text
    row, first = min(parted, key=lambda pair: pair[1]["first_difference"])
    return (
        f"{text}; the first to part is prompt {first['prompt_id']} in trial {row['trial']} at {load_of(row)} "
        f"({first['traced']} tokens traced, {first['tokens']} measured, another text from position "
        f"{first['first_difference']} on)"
    )
