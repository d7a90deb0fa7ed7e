"""What the draft's `fc` really receives: each slot of what was fed, matched against the target's taps, on every rank.

The reference taps come from a server at tensor-parallel size 1, where nothing is split. A slot is a tap when the
relative error ||fed - tap|| / ||tap|| is the smallest over all taps and below a tolerance that rounding explains.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from search_spaces.config import Taps

Kind = Literal["tap", "sliced", "partial", "unknown"]

TOLERANCE = 0.05
"""Half-precision activations differ by about 1 % between TP sizes; neighbouring taps differ by tens of percent."""

ZERO_SHARE = 1e-3


@dataclass(frozen=True, kw_only=True)
class FeedCapture:
    """One rank's probe: `fed` [tokens, width], `taps` [taps, tokens, hidden], the prompt tokens they belong to.

    `taps` are there on rank 0 only.
    """

    rank: int
    fed: NDArray[np.float32]
    taps: NDArray[np.float32]
    input_ids: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SlotMatch:
    """What one slot holds on one rank.

    `tap` is the nearest tap, `error` its relative error and `next_error` that of the second nearest. `kind` says how
    the slot relates to it: the tap itself; the rank's slice of it; a part that sums to it over ranks; or none of these.
    """

    slot: int
    rank: int
    kind: Kind
    tap: int
    error: float
    next_error: float


@dataclass(frozen=True, kw_only=True)
class FeedReport:
    """All slots on all ranks. `equal_ranks` is False when ranks were fed different values."""

    matches: tuple[SlotMatch, ...]
    ranks: int
    equal_ranks: bool
    tokens: int

    @property
    def layout(self) -> Taps | None:
        """The taps in slot order, when every rank agrees and every slot is a tap; None otherwise."""
        if any(match.kind != "tap" for match in self.matches):
            return None
        by_rank = {rank: tuple(m.tap for m in self.matches if m.rank == rank) for rank in range(self.ranks)}
        return by_rank[0] if len(set(by_rank.values())) == 1 else None

    @property
    def fault(self) -> Literal["sliced", "partial", "diverged", "unknown"] | None:
        """How tensor parallelism broke the feed; None when every rank holds whole taps alike."""
        kinds = {match.kind for match in self.matches}
        if "sliced" in kinds:
            return "sliced"
        if "partial" in kinds:
            return "partial"
        if not self.equal_ranks:
            return "diverged"
        return "unknown" if "unknown" in kinds else None


def load_capture(path: Path, rank: int) -> FeedCapture:
    """Read what the plugin wrote. OSError or KeyError when the file is missing or incomplete."""
    with np.load(path, allow_pickle=False) as content:
        return FeedCapture(rank=rank, fed=content["fed"], taps=content["taps"], input_ids=content["input_ids"])


def match_feed(captures: tuple[FeedCapture, ...], reference: FeedCapture, slots: int) -> FeedReport:
    """Match every slot of every rank. All captures must be of the same prompts: ValueError otherwise."""
    for capture in captures:
        if not np.array_equal(capture.input_ids, reference.input_ids):
            raise ValueError(f"rank {capture.rank} saw other tokens than the reference")
    split = [_slots_of(capture.fed, slots) for capture in captures]
    total = np.sum(split, axis=0)
    matches = []
    for capture, parts in zip(captures, split, strict=True):
        for slot in range(slots):
            kind, tap, errors = _judge(parts[slot], total[slot], capture.rank, len(captures), reference.taps)
            ordered = np.sort(errors)
            matches.append(
                SlotMatch(
                    slot=slot,
                    rank=capture.rank,
                    kind=kind,
                    tap=tap,
                    error=float(ordered[0]),
                    next_error=float(ordered[1]) if len(ordered) > 1 else float("inf"),
                )
            )
    equal = all(_relative(capture.fed, captures[0].fed) < TOLERANCE for capture in captures[1:])
    return FeedReport(matches=tuple(matches), ranks=len(captures), equal_ranks=equal, tokens=len(reference.input_ids))


def describe_feed(report: FeedReport, trained_on: Taps | None = None) -> str:
    """The finding in plain sentences."""
    ranks = "the only rank" if report.ranks == 1 else f"all {report.ranks} ranks"
    if report.fault == "sliced":
        return f"Every rank feeds the draft only its own slice of a hidden state ({report.ranks} ranks)."
    if report.fault == "partial":
        return (
            f"The ranks feed the draft partial sums: they were captured before the all-reduce ({report.ranks} ranks)."
        )
    if report.fault == "diverged":
        return "The ranks feed their drafts different values."
    if report.layout is None:
        worst = max(report.matches, key=lambda match: match.error)
        return f"Slot {worst.slot + 1} holds no tap of the target (nearest: tap {worst.tap}, {worst.error:.0%} off)."
    sentence = f"The draft is fed taps {list(report.layout)} on {ranks}"
    if trained_on is None:
        return sentence + "."
    wrong = [
        f"slot {slot + 1} holds tap {tap}, the draft was trained on {right}"
        for slot, (tap, right) in enumerate(zip(report.layout, trained_on, strict=False))
        if tap != right
    ]
    return f"{sentence}: {'; '.join(wrong)}." if wrong else f"{sentence}, as it was trained."


def _slots_of(fed: NDArray[np.float32], slots: int) -> NDArray[np.float32]:
    if fed.shape[1] % slots:
        raise ValueError(f"a feed of width {fed.shape[1]} cannot hold {slots} slots")
    return fed.reshape(len(fed), slots, -1).transpose(1, 0, 2)


def _judge(
    part: NDArray[np.float32],
    total: NDArray[np.float32],
    rank: int,
    ranks: int,
    taps: NDArray[np.float32],
) -> tuple[Kind, int, NDArray[np.float64]]:
    """Kind, nearest tap and the errors to all taps, in the reading that fits."""
    hidden = taps.shape[2]
    if part.shape[1] == hidden:
        errors = _errors(part, taps)
        if errors.min() < TOLERANCE:
            return "tap", int(errors.argmin()), errors
    width = hidden // ranks
    own = slice(rank * width, (rank + 1) * width)
    if ranks > 1:
        piece = part[:, own] if part.shape[1] == hidden else part
        rest = np.delete(part, np.r_[own], axis=1) if part.shape[1] == hidden else np.zeros((len(part), 0))
        sliced = _errors(piece, taps[:, :, own])
        if sliced.min() < TOLERANCE and float(np.abs(rest).sum()) <= ZERO_SHARE * float(np.abs(part).sum()):
            return "sliced", int(sliced.argmin()), sliced
        summed = _errors(total, taps) if total.shape[1] == hidden else np.array([np.inf])
        if summed.min() < TOLERANCE:
            return "partial", int(summed.argmin()), summed
    errors = _errors(part, taps) if part.shape[1] == hidden else np.full(len(taps), np.inf)
    return "unknown", int(errors.argmin()), errors


def _errors(value: NDArray[np.float32], taps: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.array([_relative(value, tap) for tap in taps], dtype=np.float64)


def _relative(value: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    if value.shape != reference.shape:
        return float("inf")
    scale = float(np.linalg.norm(reference))
    return float(np.linalg.norm(value - reference)) / scale if scale else float("inf")
