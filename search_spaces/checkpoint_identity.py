"""Whether two folders hold the same checkpoint: told from its config and its weight files' names and sizes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from search_spaces.checkpoint_folders import find_checkpoint
from search_spaces.errors import InputError

WEIGHT_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


def checkpoint_identity(place: str | Path) -> str:
    """16 hexadecimal digits, the same wherever the checkpoint lies and whatever its folder is called.

    Weights are not read: another training run with files of equal sizes and an equal config is not told apart.
    InputError when the folder or its config cannot be read.
    """
    folder = find_checkpoint(place)
    try:
        digest = hashlib.sha256((folder / "config.json").read_bytes())
        for file in sorted(folder.iterdir()):
            if file.suffix in WEIGHT_ENDINGS:
                digest.update(f"\0{file.name}\0{file.stat().st_size}".encode())
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:16]
