"""Requests that took other verify steps than their traces say: how many, and from where on their text is another. Pure.

Another text is another way through the tree: a batch of another size may part two candidates that are nearly equal.
The same text with other verify steps says that the draft proposed something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
class RequestRounds:
    """One request's verify steps and answer (token ids, empty where not known), by its trace and as measured."""

    prompt_id: str
    predicted: int
    measured: int
    traced_text: Sequence[int]
    text: Sequence[int]

    @property
    def disagreement(self) -> Disagreement:
        one, other = self.traced_text, self.text
        pairs = enumerate(zip(one, other, strict=False))
        first = next((position for position, (a, b) in pairs if a != b), min(len(one), len(other)))
        text: Text = "unknown" if not one or not other else "same" if first == len(one) == len(other) else "other"
        return Disagreement(
            prompt_id=self.prompt_id,
            predicted=self.predicted,
            measured=self.measured,
            text=text,
            first_difference=first if text == "other" else None,
        )


def disagreements(requests: Iterable[RequestRounds]) -> tuple[Disagreement, ...]:
    """Of those whose verify steps differ the `MAX_LISTED` that are off by the most."""
    off = [request for request in requests if request.predicted != request.measured]
    off.sort(key=lambda request: (-abs(request.measured - request.predicted), request.prompt_id))
    return tuple(request.disagreement for request in off[:MAX_LISTED])


def disagreement_sentence(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """One sentence on rows of `RoundsCheck.to_json`; None where every request took the predicted verify steps."""
    off = sum(row["prompts"] - row["equal_prompts"] for row in rows)
    found = [(row, one) for row in rows for one in row.get("disagreements", ())]
    if not off or not found:
        return None
    same, other = (sum(one["text"] == text for _, one in found) for text in ("same", "other"))
    which = f"of the {len(found)} in search.json" if len(found) < off else "of them"
    row, worst = max(found, key=lambda pair: abs(pair[1]["measured"] - pair[1]["predicted"]))
    load = f"{row['request_rate']:g} requests/s" if row["request_rate"] else f"concurrency {row['concurrency']}"
    where = {
        "same": "the same text",
        "other": f"another text from position {worst['first_difference']} on",
        "unknown": "a text that is not known",
    }[worst["text"]]
    return (
        f"search by surface: {off} request{'' if off == 1 else 's'} took other verify steps than the traces say; "
        f"{which} {same} gave the traced text and {other} another one; the furthest off is prompt "
        f"{worst['prompt_id']} in trial {row['trial']} at {load} ({worst['predicted']} predicted, "
        f"{worst['measured']} measured, {where})"
    )
