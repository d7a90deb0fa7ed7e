"""Making the demo pair: train, compute what its drafts are worth, and write the folder that a sweep can name."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from actors.demo_models.acceptance import ChainAcceptance, chain_acceptance, greedy
from actors.demo_models.card import CardRow, render_card
from actors.demo_models.corpus import LONGEST_PROMPT, held_out_documents, prompt_length
from actors.demo_models.draft import Draft
from actors.demo_models.target import Sizes, Target
from actors.demo_models.tokenizer import WORD_IDS, encode_words, vocabulary, write_tokenizer
from actors.demo_models.training import OnStep, Recipe, train_draft, train_target, training_batches
from search_spaces.errors import InputError

LOG_EVERY = 10
STEPS, NEW_TOKENS = 5, 128


def default_taps(layers: int) -> tuple[int, int, int]:
    """What SGLang feeds when no ids are given (`set_eagle3_layers_to_capture` of its Llama)."""
    return 2, layers // 2, layers - 3


def make_pair(folder: Path, recipe: Recipe, on_step: OnStep, *, evaluated: int = 20) -> tuple[CardRow, ...]:
    """Train the pair into a new or empty `folder` (`target/`, `draft/`, `training.jsonl`, `MODEL_CARD.md`).

    Nothing is written before the training is over, and all of it or nothing. Deterministic: the same recipe gives the
    same bytes on the same machine and version of torch. Sets torch's thread count and seed for this process.
    InputError when the folder is not empty or cannot be written.
    """
    folder = folder.absolute()
    workshop = _open_workshop(folder)
    try:
        rows = _build(workshop, recipe, on_step, evaluated)
        if folder.exists():
            folder.rmdir()
        workshop.chmod(0o755)
        workshop.rename(folder)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return rows


def _open_workshop(folder: Path) -> Path:
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder}: exists and is not an empty folder; name another one")
        folder.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from error


def _build(folder: Path, recipe: Recipe, on_step: OnStep, evaluated: int) -> tuple[CardRow, ...]:
    log: list[str] = []

    def logged(stage: str, step: int, steps: int, loss: float) -> None:
        if step % LOG_EVERY == 0 or step in (1, steps):
            log.append(json.dumps({"stage": stage, "step": step, "loss": round(loss, 4)}))
        on_step(stage, step, steps, loss)

    torch.set_num_threads(recipe.threads)
    batches = training_batches(recipe)
    # each stage has its own seed, so that one can be trained again alone
    torch.manual_seed(recipe.seed)
    target = train_target(batches, Sizes(vocab=len(vocabulary())), recipe, logged)
    torch.manual_seed(recipe.seed)
    draft = train_draft(target, batches, sorted(WORD_IDS.values()), recipe, logged)
    (folder / "target").mkdir()
    (folder / "draft").mkdir()
    target.save(folder / "target")
    write_tokenizer(folder / "target", model_max_length=target.sizes.max_positions)
    draft.save(folder / "draft")
    (folder / "training.jsonl").write_text("\n".join(log) + "\n", encoding="utf-8")
    rows = evaluate_pair(target, draft, recipe.layout, amount=evaluated)
    card = render_card(
        seed=recipe.seed,
        layers=target.sizes.layers,
        hidden=target.sizes.hidden,
        parameters=(_count(target), _count(draft)),
        rows=rows,
    )
    (folder / "MODEL_CARD.md").write_text(card, encoding="utf-8")
    return rows


def held_out_continuations(target: Target, amount: int) -> list[tuple[Tensor, int]]:
    """The demo's first prompts continued greedily by the target: (ids, prompt length), as long as evaluation needs."""
    found = []
    for document in held_out_documents(amount, length=LONGEST_PROMPT + NEW_TOKENS + STEPS + 2):
        start = prompt_length(document)
        ids = torch.tensor(encode_words(document.words[: start + NEW_TOKENS + STEPS + 2]))
        found.append((greedy(target, ids, start), start))
    return found


def evaluate_pair(target: Target, draft: Draft, layout: Sequence[int], *, amount: int) -> tuple[CardRow, ...]:
    """Accept lengths with the trained and with SGLang's default layout, computed without a server."""
    sequences = held_out_continuations(target, amount)
    rows = []
    for name, taps in (("trained", tuple(layout)), ("default", default_taps(target.sizes.layers))):
        found: ChainAcceptance = chain_acceptance(target, draft, taps, sequences, steps=STEPS, new_tokens=NEW_TOKENS)
        rows.append(
            CardRow(
                layout=name,
                taps=taps,
                accept_length=found.accept_length,
                by_position=found.by_position,
                how=f"torch, no server, {amount} prompts x {NEW_TOKENS} tokens",
            )
        )
    return tuple(rows)


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
