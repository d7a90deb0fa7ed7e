"""What further SGLang flags mean for the rules: a read-only view on a mapping of flags in snake_case.

Only what a flag says is known here. What SGLang chooses by itself from the hardware (an attention backend that is not
given, for instance) is left open, and rules that need it stay silent: the engine decides, and is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

FORCED_PAGES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("flashmla", (64,)),
    ("trtllm_mla", (32, 64)),
    ("cutedsl_mla", (32, 64)),
    ("trtllm_mha", (16, 32, 64, 128)),
    ("hpc_ops", (64,)),
)
"""Backends that turn any other page size into 64 (`arg_groups/overrides.py`, `_mla_backend_page_constraints`)."""


@dataclass(frozen=True)
class EngineArgs:
    """The flags of one launch: the fixed ones and those that are swept, the latter winning.

    What is derived is kept: a plan asks the same flags about thousands of triples.
    """

    flags: Mapping[str, object]

    def text(self, name: str) -> str | None:
        value = self.flags.get(name)
        return None if value is None else str(value)

    def number(self, name: str, default: int) -> int:
        value = self.flags.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def size(self, name: str) -> int:
        """A number of parts: 1 when the flag is absent or no such number."""
        return max(1, self.number(name, 1))

    def on(self, name: str) -> bool:
        return bool(self.flags.get(name))

    def threshold(self, name: str) -> float:
        value = self.flags.get(name)
        return float(value) if isinstance(value, int | float) else 1.0

    @cached_property
    def algorithm(self) -> str:
        """As SGLang names it after resolving the alias NEXTN; EAGLE3 when the flag is absent, since we set it."""
        name = (self.text("speculative_algorithm") or "EAGLE3").upper()
        return "EAGLE" if name == "NEXTN" else name

    @cached_property
    def base_backend(self) -> str | None:
        """`attention_backend` after SGLang's own rule that two equal split flags override it; None when unknown."""
        prefill = self.text("prefill_attention_backend")
        if prefill is not None and prefill == self.text("decode_attention_backend"):
            return prefill
        return self.text("attention_backend")

    @cached_property
    def prefill_backend(self) -> str | None:
        return self.text("prefill_attention_backend") or self.base_backend

    @cached_property
    def decode_backend(self) -> str | None:
        return self.text("decode_attention_backend") or self.base_backend

    @cached_property
    def draft_backend(self) -> str | None:
        """The backend of the draft's decoding (`speculative/draft_utils.py`, `DraftBackendFactory`)."""
        return self.text("speculative_draft_attention_backend") or self.decode_backend

    @cached_property
    def draft_extend_backend(self) -> str | None:
        """The backend that extends the draft's cache after each verify step; as `draft_backend`, for the other half."""
        follows_decode = self.text("speculative_attention_mode") == "decode"
        own = self.text("speculative_draft_attention_backend")
        return own or (self.decode_backend if follows_decode else self.prefill_backend)

    @cached_property
    def backends(self) -> frozenset[str]:
        """All backends named for the target."""
        named = (self.base_backend, self.prefill_backend, self.decode_backend)
        return frozenset(name for name in named if name is not None)

    @cached_property
    def page_size(self) -> int:
        """What `page_size` becomes under the backends that are named; 1 when nothing says otherwise."""
        page = self.number("page_size", 1)
        named = self.backends | {self.text("speculative_draft_attention_backend")}
        for backend, pages in FORCED_PAGES:
            if backend in named and page not in pages:
                page = 64
        return page

    @cached_property
    def attention_dp_size(self) -> int:
        """How many groups the attention is split into by data-parallel attention."""
        if self.on("enable_dp_attention"):
            return self.size("dp_size")
        return self.size("attn_dp_size")
