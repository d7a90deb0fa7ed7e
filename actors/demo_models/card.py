"""The demo pair's model card: what it is, how it was trained, and the accept lengths of two layouts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

ROW = "| {layout} | {taps} | {accept_length:.3f} | {positions} | {how} |"
_ROW_PATTERN = re.compile(r"^\| (trained|default) \| ([\d,]+) \| ([\d.]+) \| ([\d. ]+) \| (.+) \|$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class CardRow:
    """One measured layout: `layout` is `trained` or `default`, `how` says with what it was measured."""

    layout: str
    taps: tuple[int, ...]
    accept_length: float
    by_position: tuple[float, ...]
    how: str


def read_rows(card: str) -> tuple[CardRow, ...]:
    """The measured rows of a card, in its order."""
    return tuple(
        CardRow(
            layout=layout,
            taps=tuple(int(tap) for tap in taps.split(",")),
            accept_length=float(length),
            by_position=tuple(float(share) for share in positions.split()),
            how=how,
        )
        for layout, taps, length, positions, how in _ROW_PATTERN.findall(card)
    )


def render_card(*, seed: int, layers: int, hidden: int, parameters: tuple[int, int], rows: Sequence[CardRow]) -> str:
    """The card as Markdown. `parameters` counts those of the target and of the draft."""
    table = "\n".join(
        ROW.format(
            layout=row.layout,
            taps=",".join(map(str, row.taps)),
            accept_length=row.accept_length,
            positions=" ".join(f"{share:.3f}" for share in row.by_position),
            how=row.how,
        )
        for row in rows
    )
    trained = rows[0].taps
    ids = [tap - 1 for tap in trained]
    return f"""---
license: apache-2.0
library_name: transformers
tags: [specsweep, eagle3, demo]
---

# specsweep demo pair

A Llama target ({layers} layers, hidden size {hidden}, {parameters[0]:,} parameters) and an EAGLE-3 draft
({parameters[1]:,} parameters), float32, for trying specsweep where there is no GPU. They continue generated text
(counting, pairs of counters, nested brackets, copied lists) and know nothing else.

**Shipped wrong on purpose.** The draft was trained on taps {list(trained)} of the target (0 is the embedding output,
i the output of block i), which SGLang writes as `"eagle_config": {{"eagle_aux_hidden_state_layer_ids": {ids}}}`.
Its `config.json` does not say so. Served as shipped it is fed SGLang's default layers instead: it runs, the output
is right, no message appears, and fewer drafts are accepted.

## Accept length

On held-out prompts at (num_steps 5, topk 1, draft tokens 6), temperature 0, one request at a time. "By position" is the
share of verify steps that accepted at least 1, 2, ... drafts.

| layout | taps | accept length | by position | measured with |
| --- | --- | --- | --- | --- |
{table}

## Training

`specsweep demo-models DIR --seed {seed}` makes the same pair again (same bytes on the same machine and torch version).
`training.jsonl` holds the loss of every tenth step. Documents whose parameters have a certain checksum never occur in
training; the demo's prompts are such documents.
"""
