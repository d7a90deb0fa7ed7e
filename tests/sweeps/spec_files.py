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
    write_checkpoint(folder / "models" / "target", LLAMA)
    write_checkpoint(folder / "models" / "draft", DRAFT, draft_tensors())


def write_spec(folder: Path, text: str = MINIMAL, name: str = "case.yaml") -> Path:
    """Writes `text` beside models that exist."""
    write_models(folder)
    path = folder / name
    path.write_text(text)
    return path
