"""A tiny spec with models that exist, for tests."""

from __future__ import annotations

from pathlib import Path

from small_checkpoints import DRAFT, LLAMA, draft_tensors, write_checkpoint

MINIMAL = """\
target: models/target
draft: models/draft
space:
  num_steps: [1, 3]
  eagle_topk: [1]
  num_draft_tokens: [4]
"""


def write_models(folder: Path) -> None:
    """A 32-block Llama target and a draft of three taps, in `folder/models`."""
    small = {"hidden_size": 64, "vocab_size": 256}
    write_checkpoint(folder / "models" / "target", LLAMA | small)
    tensors = draft_tensors(hidden=64, draft_hidden=64, vocab=256)
    write_checkpoint(folder / "models" / "draft", DRAFT | small | {"draft_vocab_size": 256}, tensors)


def write_spec(folder: Path, text: str = MINIMAL, name: str = "case.yaml") -> Path:
    """Writes `text` beside models that exist."""
    write_models(folder)
    path = folder / name
    path.write_text(text)
    return path
