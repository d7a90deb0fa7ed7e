"""What a chain draft would be accepted, computed in torch without a server (topk 1, greedy, float32)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from actors.demo_models.draft import Draft, Keys
from actors.demo_models.target import Target


@dataclass(frozen=True, kw_only=True)
class ChainAcceptance:
    """Counts over all prompts. `by_position[j]` is the share of verify steps that accepted more than j drafts."""

    tokens: int
    verify_steps: int
    by_position: tuple[float, ...]

    @property
    def accept_length(self) -> float:
        """Generated tokens per verify step, as SGLang's per-request counters give it."""
        return self.tokens / self.verify_steps


@torch.no_grad()
def greedy(target: Target, guess: Tensor, prompt_length: int) -> Tensor:
    """The target's greedy continuation of `guess[:prompt_length]`, as long as `guess`, (length,) ids.

    Jacobi iteration: choose every position at once until nothing changes; each round settles at least one more token,
    and all up to the guess's first wrong one.
    """
    ids = guess.clone()
    for _ in range(prompt_length, len(ids) + 1):
        chosen = target(ids[None, :-1])[0][0].argmax(-1)[prompt_length - 1 :]
        if torch.equal(chosen, ids[prompt_length:]):
            break
        ids[prompt_length:] = chosen
    return ids


@torch.no_grad()
def accepted_drafts(target: Target, draft: Draft, layout: Sequence[int], ids: Tensor, steps: int) -> Tensor:
    """For each position p of `ids` (length,): how many of `steps` drafts made after p's target state match `ids`.

    Entry p speaks of the tokens from p+2 on (p+1 is the verified token that starts the chain); the last `steps` + 1
    positions are left out. A chain only goes on after right drafts, so drafting from the true tokens is the same.
    """
    _, taps = target(ids[None])
    embeds = target.embed_tokens(ids[None])
    hidden = draft.fc(torch.cat([taps[tap] for tap in layout], -1))
    cache: Keys = []
    anchors = len(ids) - 1 - steps
    alive = torch.ones(anchors, dtype=torch.bool)
    accepted = torch.zeros(anchors, dtype=torch.int64)
    for step in range(steps):
        logits, hidden = draft.step(embeds[:, 1 + step : 1 + step + anchors], hidden[:, :anchors], step, cache)
        alive &= draft.hot_ids[logits[0].argmax(-1)] == ids[2 + step : 2 + step + anchors]
        accepted += alive
    return accepted


def chain_acceptance(
    target: Target,
    draft: Draft,
    layout: Sequence[int],
    sequences: Sequence[tuple[Tensor, int]],
    *,
    steps: int,
    new_tokens: int,
) -> ChainAcceptance:
    """Walk the verify steps of (greedy ids, prompt length) sequences; each needs `new_tokens` + `steps` + 2 new ids."""
    tokens, histogram = 0, torch.zeros(steps + 1, dtype=torch.int64)
    for ids, prompt_length in sequences:
        accepted = accepted_drafts(target, draft, layout, ids, steps)
        produced = 1
        while produced < new_tokens:
            right = int(accepted[prompt_length + produced - 2])
            histogram[right] += 1
            produced += right + 1
        tokens += new_tokens
    verify_steps = int(histogram.sum())
    beyond = histogram.flip(0).cumsum(0).flip(0)[1:] / verify_steps
    return ChainAcceptance(tokens=tokens, verify_steps=verify_steps, by_position=tuple(beyond.tolist()))
