"""What the stand-in for SGLang answers: tokens, accepted drafts and their counters. Standard library only."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

ENCODING = "utf-8"


def draft_ids(info: dict[str, Any]) -> list[int] | None:
    """The aux ids that the draft's config names: the override file's, else the checkpoint's."""
    path = info.get("decrypted_draft_config_file") or f"{info.get('speculative_draft_model_path')}/config.json"
    try:
        config = json.loads(Path(path).read_text(encoding=ENCODING))
    except OSError:
        return None
    return (config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")


class Model:
    """Tokens and accepted drafts, a function of the prompt and the setting alone."""

    def __init__(self, info: dict[str, Any], plan: dict[str, Any]) -> None:
        good, bad = plan.get("accept", [0.8, 0.2])
        wanted = plan.get("good_ids", "any")
        self.chance = good if wanted == "any" or draft_ids(info) == wanted else bad
        self.steps = info["speculative_num_steps"]
        self.num_draft_tokens = info["speculative_num_draft_tokens"]

    def rounds(self, prompt: str, count: int) -> list[int]:
        """How many tokens each forward pass after the prefill commits; they sum to count - 1."""
        seed = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:8], "big")
        draw = random.Random(seed)
        rounds: list[int] = []
        while sum(rounds) < count - 1:
            accepted = 0
            while self.steps and accepted < self.steps and draw.random() < self.chance:
                accepted += 1
            rounds.append(min(accepted + 1, count - 1 - sum(rounds)))
        return rounds

    def ids(self, prompt: str, count: int) -> list[int]:
        draw = random.Random(prompt)
        return [draw.randrange(3, 500) for _ in range(count)]

    def meta(self, prompt_tokens: int, completion_tokens: int, rounds: list[int], request_id: str) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "id": request_id,
            "finish_reason": {"type": "length", "length": completion_tokens},
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "cached_tokens": 0,
        }
        if self.steps:
            histogram = [0] * max(rounds, default=1)
            for committed in rounds:
                histogram[committed - 1] += 1
            correct = sum(i * n for i, n in enumerate(histogram))
            proposed = len(rounds) * (self.num_draft_tokens - 1)
            meta |= {
                "spec_verify_ct": len(rounds),
                "spec_accept_length": completion_tokens / len(rounds) if rounds else 0.0,
                "spec_accept_rate": correct / proposed if proposed else 0.0,
                "spec_num_correct_drafts": correct,
                "spec_num_proposed_drafts": proposed,
                "spec_correct_drafts_histogram": histogram,
            }
        return meta
