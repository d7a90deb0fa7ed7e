from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_checkpoints import DRAFT, draft_tensors, write_checkpoint

from search_spaces.checkpoint_identity import checkpoint_identity
from search_spaces.errors import InputError


def test_a_copy_is_the_same_checkpoint(tmp_path: Path) -> None:
    first = write_checkpoint(tmp_path / "first", DRAFT, draft_tensors(hidden=8, draft_hidden=8, vocab=16))
    shutil.copytree(first, tmp_path / "second")
    (tmp_path / "second" / "README.md").write_text("moved here")
    assert checkpoint_identity(first) == checkpoint_identity(tmp_path / "second")


def test_another_config_or_other_weights_are_another(tmp_path: Path) -> None:
    small = draft_tensors(hidden=8, draft_hidden=8, vocab=16)
    first = checkpoint_identity(write_checkpoint(tmp_path / "a", DRAFT, small))
    config = checkpoint_identity(write_checkpoint(tmp_path / "b", DRAFT | {"rope_theta": 1.0}, small))
    larger = draft_tensors(taps=4, hidden=8, draft_hidden=8, vocab=16)
    weights = checkpoint_identity(write_checkpoint(tmp_path / "c", DRAFT, larger))
    assert len({first, config, weights}) == 3


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        checkpoint_identity(tmp_path)
