"""What the tracing plugin would write, for the stand-in server. Standard library only.

A chain's drafts are the text itself up to the first that the stand-in's chance lets miss; of a tree only its shape is
right.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any


class FakePools:
    """The trace that one order asks for; on the disk after `write`."""

    def __init__(self, order: dict[str, Any], chance: float) -> None:
        self._file = Path(order["trace"]["file"])
        self._steps, self._topk, self._chance = order["num_steps"], order["eagle_topk"], chance
        self._nodes = self._topk + (self._steps - 1) * self._topk**2
        self._parents = 0 if self._steps == 1 or self._topk == 1 else 1 + self._topk * (self._steps - 1)
        self._records: list[bytes] = []
        self._requests: list[str] = []

    def note(self, request_id: str, prompt_tokens: int, ids: list[int]) -> None:
        """Every position of one answer."""
        self._requests.append(request_id)
        draw = random.Random(str(ids))
        for at in range(len(ids) - 1):
            tokens = [0 if draw.random() > self._chance else token for token in ids[at + 1 : at + 1 + self._steps]]
            tokens = (tokens + [1] * self._nodes)[: self._nodes] if self._topk == 1 else list(range(self._nodes))
            scores = [1.0 / (1 + node) for node in range(self._nodes)]
            parents = [parent - 1 for parent in range(self._parents)]
            layout = f"<II{self._nodes}i{self._nodes}f{self._parents}i"
            where = (len(self._requests) - 1, prompt_tokens + at)
            self._records.append(struct.pack(layout, *where, *tokens, *scores, *parents))

    def write(self) -> None:
        sizes = {"num_steps": self._steps, "eagle_topk": self._topk, "nodes": self._nodes, "parents": self._parents}
        head = json.dumps({"version": 1, **sizes}).encode() + b"\n"
        self._file.write_bytes(head + b"".join(self._records))
        lines = [json.dumps({"index": i, "rid": rid}) + "\n" for i, rid in enumerate(self._requests)]
        self._file.with_name(self._file.name + ".requests").write_text("".join(lines), encoding="utf-8")
