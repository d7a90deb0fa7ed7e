"""Stand-ins that let SGLang's published, CUDA-only wheel serve small models on a CPU. Numbers of them are no GPU's.

- `sgl_kernel`: the few CPU functions that speculative decoding needs, in torch. SGLang's wheel of the same name holds
  CUDA code only, and is a dependency that a CPU machine cannot load.
- `triton`, `torchvision`: imported by SGLang at module level and never used by a text model on the CPU; these import
  and do nothing.

Each lies in a folder of its own, so that only what is really missing is put on a server's PYTHONPATH.
"""

from __future__ import annotations

from pathlib import Path

STAND_INS = ("sgl_kernel", "triton", "torchvision")

_FOLDER = Path(__file__).parent


def stand_in_paths(names: frozenset[str]) -> tuple[Path, ...]:
    """Folders for PYTHONPATH that make these packages importable; empty for no names. KeyError on an unknown name."""
    for name in names:
        if name not in STAND_INS:
            raise KeyError(name)
    if not names:
        return ()
    return (_FOLDER / "common", *(_FOLDER / f"for_{name}" for name in STAND_INS if name in names))
