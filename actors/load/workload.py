"""Workloads: the prompts and the way they are sent, with an identity."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """One prompt as it is sent. `prompt_id` is stable across studies: the start of the text's SHA-256."""

    prompt_id: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Prompts and sampling of a study; every concurrency is one cell. `warmup` prompts are not among `prompts`."""

    prompts: tuple[Prompt, ...] = field(repr=False)
    warmup: tuple[Prompt, ...] = field(repr=False)
    concurrency: tuple[int, ...]
    max_new_tokens: int
    temperature: float
    ignore_eos: bool
    stream: bool
    request_timeout_s: float
    max_attempts: int

    @property
    def workload_id(self) -> str:
        """16 hexadecimal digits over prompts and sampling; concurrency and client limits are not part of it."""
        sampling = {
            k: v for k, v in asdict(self).items() if k in ("max_new_tokens", "temperature", "ignore_eos", "stream")
        }
        content = [sampling, [prompt.prompt_id for prompt in self.prompts]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
