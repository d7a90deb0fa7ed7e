"""Whether two servers said the same on the same prompts: at temperature 0 a difference is a finding in itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from results.observations import RequestRow


@dataclass(frozen=True, kw_only=True)
class OutputIdentity:
    """Outputs of the prompts that both answered. `divergences` are the positions (from 0) where different ones part."""

    shared: int
    divergences: tuple[int, ...]

    @property
    def first_divergence(self) -> int | None:
        """The earliest position at which any output parts; None when none does."""
        return min(self.divergences, default=None)

    @property
    def identical_share(self) -> float | None:
        return 1 - len(self.divergences) / self.shared if self.shared else None

    def __str__(self) -> str:
        if not self.shared:
            return "no prompt was answered by both"
        if not self.divergences:
            return f"all {self.shared} outputs are identical"
        return (
            f"{len(self.divergences)} of {self.shared} outputs differ, from token {min(self.divergences)} on at the "
            f"earliest (median {median(self.divergences):g})"
        )


def first_divergence(first: Sequence[int], second: Sequence[int]) -> int | None:
    """The first position at which two outputs differ, one being shorter included; None when they are equal."""
    for position, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return position
    return None if len(first) == len(second) else min(len(first), len(second))


def compare_outputs(first: Sequence[RequestRow], second: Sequence[RequestRow]) -> OutputIdentity:
    """Compare by prompt; failed requests are left out, and of a repeated prompt the last answer counts."""
    outputs = {row.prompt_id: row.output_ids for row in first if row.error is None}
    others = {row.prompt_id: row.output_ids for row in second if row.error is None}
    shared = sorted(outputs.keys() & others.keys())
    found = (first_divergence(outputs[prompt_id], others[prompt_id]) for prompt_id in shared)
    return OutputIdentity(shared=len(shared), divergences=tuple(at for at in found if at is not None))
