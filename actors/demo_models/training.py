"""Training of the demo pair: the target on the corpus, then the draft on what the target says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor
from torch.nn import functional

from actors.demo_models.corpus import documents
from actors.demo_models.draft import Draft, Keys
from actors.demo_models.optimizers import Optimizer, Rates
from actors.demo_models.target import Sizes, Target
from actors.demo_models.tokenizer import encode_words

OnStep = Callable[[str, int, int, float], None]
"""Called after each step with the stage (`target`, `draft`), the step from 1, the number of steps, and the loss."""

TRAINED_LAYOUT = (0, 3, 7)
TARGET_RATES = Rates(matrix=0.02, other=4e-3)
DRAFT_RATES = Rates(matrix=0.04, other=5e-3)
IGNORED = -100
"""The label that torch's cross entropy skips."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a training is made of; the defaults make the demo pair.

    Both stages see the first `short` words of documents for `short_share` of their steps (rules are learned faster
    there), then all `length` words (so that positions as far as a sweep's answers reach are learned too). `unrolled`
    draft steps are trained; SGLang's --speculative-num-steps is meant to stay at or below it. One thread, because the
    matrices are small: a second gains little, loses a lot on a busy machine, and would let the bytes depend on the
    number of cores.
    """

    seed: int = 0
    documents: int = 6000
    length: int = 176
    short: int = 80
    short_share: float = 0.8
    batch: int = 16
    target_steps: int = 460
    draft_steps: int = 480
    unrolled: int = 5
    target_rates: Rates = TARGET_RATES
    draft_rates: Rates = DRAFT_RATES
    layout: tuple[int, ...] = TRAINED_LAYOUT
    draft_mlp: int = 384
    draft_heads: int = 4
    threads: int = 1

    def words_at(self, step: int, steps: int) -> int:
        return self.short if step <= self.short_share * steps else self.length


@dataclass(frozen=True)
class Batches:
    """Training documents as ids (documents, length) and their header lengths (documents,)."""

    ids: Tensor
    headers: Tensor

    def draw(self, amount: int, length: int) -> tuple[Tensor, Tensor]:
        """Random rows cut to `length`, and which of their positions are told by what comes before (not the header)."""
        chosen = torch.randint(len(self.ids), (amount,))
        return self.ids[chosen, :length], torch.arange(length) >= self.headers[chosen, None]


def training_batches(recipe: Recipe) -> Batches:
    """The documents of a recipe, none of them held out."""
    drawn = list(islice(documents(recipe.seed, length=recipe.length, held_out=False), recipe.documents))
    ids = torch.tensor([encode_words(document.words) for document in drawn])
    return Batches(ids, torch.tensor([document.header for document in drawn]))


def train_target(batches: Batches, sizes: Sizes, recipe: Recipe, on_step: OnStep) -> Target:
    """Next-token training on what follows each document's header (the header itself is random)."""
    target, steps = Target(sizes), recipe.target_steps
    optimizer = Optimizer(target, steps, recipe.target_rates)
    for step in range(1, steps + 1):
        ids, told = batches.draw(recipe.batch, recipe.words_at(step, steps))
        logits, _ = target(ids[:, :-1])
        labels = ids.masked_fill(~told, IGNORED)[:, 1:]
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.minimise(loss)
        on_step("target", step, steps, loss.item())
    return target.eval()


def train_draft(target: Target, batches: Batches, hot_ids: Sequence[int], recipe: Recipe, on_step: OnStep) -> Draft:
    """Training-time test (EAGLE-3): the draft runs on its own hidden states and learns the target's next choices."""
    sizes = replace(target.sizes, mlp=recipe.draft_mlp, heads=recipe.draft_heads, kv_heads=recipe.draft_heads // 2)
    draft, steps = Draft(sizes, num_taps=len(recipe.layout), hot_ids=hot_ids), recipe.draft_steps
    draft.speak_like(target.lm_head.weight)
    optimizer = Optimizer(draft, steps, recipe.draft_rates)
    to_draft_id = torch.full((sizes.vocab,), IGNORED)
    to_draft_id[draft.hot_ids] = torch.arange(len(hot_ids))
    for step in range(1, steps + 1):
        ids, told = batches.draw(recipe.batch, recipe.words_at(step, steps))
        with torch.no_grad():
            logits, taps = target(ids)
            # what the target says after a position, where the rule says it too
            labels = to_draft_id[logits[:, :-1].argmax(-1)].masked_fill(~told[:, 1:], IGNORED)
            embeds = target.embed_tokens(ids)
        states = torch.cat([taps[tap] for tap in recipe.layout], -1)
        loss = unrolled_loss(draft, states, embeds, labels, recipe.unrolled)
        optimizer.minimise(loss)
        on_step("draft", step, steps, loss.item())
    return draft.eval()


def unrolled_loss(draft: Draft, states: Tensor, embeds: Tensor, labels: Tensor, steps: int) -> Tensor:
    """Mean cross entropy over `steps` unrolled draft steps.

    `states` (batch, positions, taps x hidden) and `embeds` (batch, positions, hidden) belong to the same tokens;
    `labels[:, p]` is the draft id of the target's choice after position p, one position fewer. Anchor a at step j
    holds the embedding of token a+1+j and is asked for the choice after it.
    """
    keys: Keys = []
    hidden, total = draft.fc(states), torch.zeros(())
    for step in range(steps):
        wanted = labels[:, 1 + step :]
        anchors = wanted.shape[1]
        logits, hidden = draft.step(embeds[:, 1 + step : 1 + step + anchors], hidden[:, :anchors], step, keys)
        total = total + functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
    return total / steps
