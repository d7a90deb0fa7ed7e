"""What SGLang's draft classes read from a draft's config and build from it.

Sources: `srt/models/llama_eagle3.py` (LlamaModel), `srt/models/kimi_k25_eagle3.py` (Eagle3MLAModel) of 0.5.23.
"""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.checkpoints import AUX_IDS_KEY
from search_spaces.model_facts import DraftFacts

LLAMA_DRAFT = "LlamaForCausalLMEagle3"
MLA_DRAFT = "Eagle3DeepseekV2ForCausalLM"
EAGLE3_DRAFTS = (LLAMA_DRAFT, MLA_DRAFT)


@dataclass(frozen=True, kw_only=True)
class FcInput:
    """The `fc` that SGLang builds: `taps` states of `tap_width` each; `source` is the key that decided."""

    taps: int
    tap_width: int
    source: str

    @property
    def width(self) -> int:
        return self.taps * self.tap_width


def built_fc(draft: DraftFacts) -> FcInput:
    """The `fc` input that SGLang builds from the draft's config, before it looks at any weight."""
    width = draft.config.get("target_hidden_size")
    width = width if isinstance(width, int) and width > 0 else draft.hidden_size
    explicit = draft.config.get("num_aux_hidden_states")
    if draft.architecture != MLA_DRAFT and isinstance(explicit, int):
        return FcInput(taps=explicit, tap_width=width, source="num_aux_hidden_states")
    if draft.aux_ids is not None and (draft.aux_ids or draft.architecture == MLA_DRAFT):
        return FcInput(taps=len(draft.aux_ids), tap_width=width, source=f"eagle_config.{AUX_IDS_KEY}")
    top = draft.config.get(AUX_IDS_KEY)
    if draft.architecture == MLA_DRAFT and isinstance(top, list):
        return FcInput(taps=len(top), tap_width=width, source=f"top-level {AUX_IDS_KEY}")
    return FcInput(taps=3, tap_width=width, source="SGLang's default of 3 taps")


def norm_before_fc(draft: DraftFacts) -> bool:
    """One norm over the concatenated taps. Only the Llama draft class has it."""
    return draft.architecture != MLA_DRAFT and bool(
        draft.eagle_config.get("norm_before_fc", draft.config.get("norm_before_fc", False))
    )


def fc_norm(draft: DraftFacts) -> bool:
    """One norm per tap before `fc` (also under its older name `use_aux_norm`)."""
    return bool(draft.config.get("fc_norm") or draft.config.get("use_aux_norm"))
