"""Workloads: the prompts and the way they are sent, with an identity."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """One prompt as it is sent. `prompt_id` is stable across studies: the start of the text's SHA-256."""

    prompt_id: str
    text: str


def prompt_of(text: str) -> Prompt:
    """The prompt with this text; its id is the first 16 hexadecimal digits of the UTF-8 text's SHA-256."""
    return Prompt(prompt_id=hashlib.sha256(text.encode()).hexdigest()[:16], text=text)


def _common_prefix(first: str, second: str) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Prompts and sampling of a study; every concurrency (closed loop) and every request rate (open loop) is one cell.

    `warmup` prompts are not among `prompts`, and no prompt occurs twice: a repeat would be answered from the prefix
    cache. `request_rate` is in requests per second with Poisson arrivals drawn from `arrival_seed`. `template_hash`
    names the chat template that the texts went through, None when they are sent as they were read. `api_key_env` is
    the name of an environment variable; the key itself is never stored. A closed-loop cell stops before its last
    prompt once the 95 % intervals of throughput and accept length have this relative `half_width`, but not before
    `min_prompts` (nor for that before 32, see `results/stopping.py`); with None every prompt is sent. ValueError when a
    value is out of range.
    """

    prompts: tuple[Prompt, ...] = field(repr=False)
    warmup: tuple[Prompt, ...] = field(repr=False)
    concurrency: tuple[int, ...]
    max_new_tokens: int
    temperature: float
    ignore_eos: bool
    stream: bool
    request_timeout_s: float
    max_attempts: int
    request_rate: tuple[float, ...] = ()
    arrival_seed: int = 0
    template_hash: str | None = None
    endpoint: str = "/generate"
    api_key_env: str | None = None
    half_width: float | None = None
    min_prompts: int = 16

    def __post_init__(self) -> None:
        self._check_load()
        self._check_prompts()

    def _check_load(self) -> None:
        for name, numbers in (
            ("concurrency", self.concurrency),
            ("max_new_tokens", (self.max_new_tokens,)),
            ("max_attempts", (self.max_attempts,)),
        ):
            if any(isinstance(number, bool) or not isinstance(number, int) or number < 1 for number in numbers):
                raise ValueError(f"{name} must be whole numbers of at least 1, not {numbers}")
        for name, values in (("request_rate", self.request_rate), ("request_timeout_s", (self.request_timeout_s,))):
            if not all(math.isfinite(value) and value > 0 for value in values):
                raise ValueError(f"{name} must be finite and above 0, not {values}")
        for name, loads in (("concurrency", self.concurrency), ("request_rate", self.request_rate)):
            if len(set(loads)) != len(loads):
                raise ValueError(f"{name} holds a value twice, {loads}: every value is one cell")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be 0 or more, not {self.temperature}")
        if self.half_width is not None and not 0 < self.half_width < 1:
            raise ValueError(f"half_width must be between 0 and 1, not {self.half_width}")
        if self.min_prompts < 2:
            raise ValueError(f"min_prompts must be 2 or more, not {self.min_prompts}")
        if not self.concurrency and not self.request_rate:
            raise ValueError("a workload needs a concurrency or a request_rate")

    def _check_prompts(self) -> None:
        if not self.prompts:
            raise ValueError("a workload needs at least one prompt")
        measured = {prompt.prompt_id for prompt in self.prompts}
        if len(measured) != len(self.prompts):
            raise ValueError("a prompt occurs twice in the workload")
        if any(prompt.prompt_id in measured for prompt in self.warmup):
            raise ValueError("a warm-up prompt is among the measured ones")

    @property
    def prompt_set_hash(self) -> str:
        """16 hexadecimal digits over the measured prompts' ids, in order."""
        ids = "\n".join(prompt.prompt_id for prompt in self.prompts)
        return hashlib.sha256(ids.encode()).hexdigest()[:16]

    @property
    def workload_id(self) -> str:
        """16 hexadecimal digits over the prompts, their template, the sampling and the endpoint.

        Concurrency, request rate and the client's limits are not part of it: they tell the cells of one workload apart.
        Nor is the rule for stopping: a cell that stops early has sent the first prompts of the same order.
        """
        content = {
            "prompts": self.prompt_set_hash,
            "template": self.template_hash,
            "endpoint": self.endpoint,
            "max_new_tokens": self.max_new_tokens,
            "temperature": float(self.temperature),
            "ignore_eos": self.ignore_eos,
            "stream": self.stream,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def shared_prefix_share(self) -> float:
        """The share of the prompts' characters that repeat the beginning of another prompt, between 0 and 1.

        What a prefix cache may answer, roughly, although it was empty before the first prompt.
        """
        texts = sorted(prompt.text for prompt in self.prompts)
        shared = sum(_common_prefix(first, second) for first, second in itertools.pairwise(texts))
        return shared / sum(len(text) for text in texts)
