"""An observation measured elsewhere: one row of what `explain` reads, wherever it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Role = Literal["suspect", "reference", "baseline", "control"]
ROLES: tuple[str, ...] = get_args(Role)


@dataclass(frozen=True, kw_only=True)
class Death:
    """What a server's log says it died of: a tree larger than its pool, states that do not fit, or memory."""

    kind: Literal["tree", "states", "oom"]
    line: str


@dataclass(frozen=True, kw_only=True)
class ExternalRow:
    """One measurement as somebody reports it. Everything may be absent; what is there has been checked for type.

    `target_class` is an architecture (`LlamaForCausalLM`) or SGLang's name of its module (`llama`). `layout_ids` are
    the ids in the draft's config, `layout_taps` what was really captured, `trained_taps` what the draft was trained
    on. `acceptance_by_position` is unconditional. `drafts` are proposed draft tokens, `accepted` those accepted.
    Lengths are in tokens, throughputs in tokens per second. `flags` are further server flags or environment variables.
    `source` says where the row came from (file and line); it is no field of the file format, nor are `notes`, what the
    reader of a log or of a dump knows besides, and `death`, what the server died of.
    """

    label: str | None = None
    target_class: str | None = None
    num_layers: int | None = None
    hidden_size: int | None = None
    layout_ids: tuple[int, ...] | None = None
    layout_taps: tuple[int, ...] | None = None
    trained_taps: tuple[int, ...] | None = None
    num_steps: int | None = None
    eagle_topk: int | None = None
    num_draft_tokens: int | None = None
    tp_size: int | None = None
    dp_size: int | None = None
    dp_attention: bool | None = None
    sglang_version: str | None = None
    accept_length: float | None = None
    acceptance_by_position: tuple[float, ...] | None = None
    histogram: tuple[int, ...] | None = None
    completion_tokens: int | None = None
    verify_steps: int | None = None
    drafts: int | None = None
    accepted: int | None = None
    output_throughput: float | None = None
    baseline_throughput: float | None = None
    concurrency: int | None = None
    context_tokens: int | None = None
    temperature: float | None = None
    radix_cache: bool | None = None
    cached_token_share: float | None = None
    cuda_graph: bool | None = None
    chunked_prefill_size: int | None = None
    max_running_requests: int | None = None
    distinct_tokens: int | None = None
    output_tokens: int | None = None
    prompt_set: str | None = None
    num_prompts: int | None = None
    role: Role | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    notes: tuple[str, ...] = ()
    death: Death | None = None

    @property
    def name(self) -> str:
        return self.label or self.source or "row"
