"""Which dialect each target class speaks, by SGLang version.

Read in `sglang/srt/models/*.py` of releases 0.5.9, 0.5.11, 0.5.12, 0.5.13, 0.5.15, 0.5.16, 0.5.17, 0.5.18, 0.5.20 and
0.5.23: `set_eagle3_layers_to_capture` of each class and the loop of the model that it marks. Bounds are the releases
in which a change was seen first. A class that is absent does not implement EAGLE-3 capture in that release and is
refused at start (`model_executor/model_runner_components/attention_backend_setup.py`,
`configure_aux_hidden_state_capture`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from search_spaces.capture import Capture, Dialect, Inexpressible
from search_spaces.errors import InputError
from search_spaces.versions import holds

__all__ = [
    "DIALECTS",
    "TABLE",
    "Capture",
    "Dialect",
    "Inexpressible",
    "dialect_of",
    "find_dialect",
    "supported_architectures",
]

PLUS_ONE = Dialect(name="plus_one", source="models/llama.py, LlamaForCausalLM")
PLUS_ONE_TO_LAST = Dialect(name="plus_one_to_last", source="models/gemma3_causal.py, Gemma3ForCausalLM", last_tap=True)
LAYER_FLAGS = Dialect(name="layer_flags", source="models/qwen2_moe.py, Qwen2MoeModel", marking="layer_flags")
UNUSED_FLAGS = Dialect(
    name="unused_flags",
    source="models/qwen3_vl_moe.py, Qwen3MoeLLMModel.forward; models/qwen2_moe.py, Qwen2MoeModel",
    marking="unused_flags",
)
DEEPSEEK = Dialect(
    name="deepseek",
    source="models/deepseek_v2.py, DeepseekV2ForCausalLM (sglang PR #25454)",
    shift="first_is_one",
    counts_states=True,
)
GLM4_LITE = Dialect(
    name="glm4_moe_lite", source="models/glm4_moe_lite.py, Glm4MoeLiteForCausalLM", shift="first_is_one"
)
GPT_OSS = Dialect(name="gpt_oss", source="models/gpt_oss.py, GptOssForCausalLM", shift="unless_last", last_tap=True)
MINIMAX_M3_VL = Dialect(
    name="minimax_m3_vl",
    source="models/minimax_m3_vl.py, MiniMaxM3SparseForConditionalGeneration",
    last_tap=True,
    default_shifted=True,
)
MINIMAX_M3_VL_SHORT = Dialect(
    name="minimax_m3_vl_short",
    source="models/minimax_m3_vl.py, MiniMaxM3SparseForConditionalGeneration, before the last block was captured",
    default_shifted=True,
)

DIALECTS: tuple[Dialect, ...] = (
    PLUS_ONE,
    PLUS_ONE_TO_LAST,
    LAYER_FLAGS,
    UNUSED_FLAGS,
    DEEPSEEK,
    GLM4_LITE,
    GPT_OSS,
    MINIMAX_M3_VL,
    MINIMAX_M3_VL_SHORT,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Speaks:
    """These architectures speak this dialect in releases `since` <= v < `until`."""

    dialect: Dialect
    architectures: tuple[str, ...]
    since: str | None = None
    until: str | None = None


_DEEPSEEK_V2 = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "MistralLarge3ForCausalLM",
    "KimiK25ForConditionalGeneration",
)

TABLE: tuple[Speaks, ...] = (
    Speaks(
        dialect=PLUS_ONE,
        architectures=(
            "ApertusForCausalLM",
            "BailingMoEForCausalLM",
            "BailingMoeForCausalLM",
            "BailingMoeV2ForCausalLM",
            "ExaoneMoEForCausalLM",
            "Glm4MoeForCausalLM",
            "InternLM3ForCausalLM",
            "IQuestCoderForCausalLM",
            "Llama4ForCausalLM",
            "Llama4ForConditionalGeneration",
            "LlamaForCausalLM",
            "LongcatFlashForCausalLM",
            "MiniMaxM2ForCausalLM",
            "Ministral3ForCausalLM",
            "MistralForCausalLM",
            "Phi3ForCausalLM",
            "Qwen2ForCausalLM",
            "Qwen2_5_VLForConditionalGeneration",
            "Qwen3ForCausalLM",
            "TeleFLMForCausalLM",
        ),
    ),
    Speaks(
        dialect=PLUS_ONE,
        architectures=(
            "Qwen3VLForConditionalGeneration",
            "SarvamMoEForCausalLM",
        ),
        since="0.5.11",
    ),
    Speaks(
        dialect=UNUSED_FLAGS,
        architectures=("InternS1ProForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"),
        since="0.5.11",
    ),
    Speaks(
        dialect=PLUS_ONE,
        architectures=("Cosmos3ForConditionalGeneration", "Glm5NextForConditionalGeneration"),
        since="0.5.20",
    ),
    Speaks(dialect=PLUS_ONE, architectures=("ExaoneMoeForCausalLM",), since="0.5.23"),
    Speaks(
        dialect=LAYER_FLAGS,
        architectures=("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM"),
    ),
    Speaks(dialect=LAYER_FLAGS, architectures=("MellumForCausalLM",), since="0.5.16"),
    Speaks(
        dialect=LAYER_FLAGS,
        architectures=(
            "InternS2MobiusForConditionalGeneration",
            "InternS2PreviewForConditionalGeneration",
            "Qwen3_5ForCausalLM",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForCausalLM",
            "Qwen3_5MoeForConditionalGeneration",
            "Qwen4ExpForConditionalGeneration",
        ),
        since="0.5.23",
    ),
    Speaks(
        dialect=PLUS_ONE_TO_LAST,
        architectures=(
            "Gemma3ForCausalLM",
            "Gemma3ForConditionalGeneration",
            "Gemma4ForCausalLM",
            "Gemma4ForConditionalGeneration",
        ),
        since="0.5.12",
    ),
    Speaks(dialect=PLUS_ONE_TO_LAST, architectures=("Gemma4UnifiedForConditionalGeneration",), since="0.5.13"),
    Speaks(dialect=PLUS_ONE, architectures=("MiniMaxM3SparseForCausalLM",), since="0.5.16", until="0.5.23"),
    Speaks(dialect=PLUS_ONE_TO_LAST, architectures=("MiniMaxM3SparseForCausalLM",), since="0.5.23"),
    Speaks(
        dialect=MINIMAX_M3_VL_SHORT,
        architectures=("MiniMaxM3SparseForConditionalGeneration",),
        since="0.5.16",
        until="0.5.23",
    ),
    Speaks(dialect=MINIMAX_M3_VL, architectures=("MiniMaxM3SparseForConditionalGeneration",), since="0.5.23"),
    Speaks(dialect=PLUS_ONE, architectures=_DEEPSEEK_V2, until="0.5.13"),
    Speaks(dialect=DEEPSEEK, architectures=_DEEPSEEK_V2, since="0.5.13"),
    Speaks(dialect=PLUS_ONE, architectures=("Glm4MoeLiteForCausalLM",), until="0.5.13"),
    Speaks(dialect=GLM4_LITE, architectures=("Glm4MoeLiteForCausalLM",), since="0.5.13"),
    Speaks(dialect=PLUS_ONE, architectures=("GptOssForCausalLM",), until="0.5.17"),
    Speaks(dialect=GPT_OSS, architectures=("GptOssForCausalLM",), since="0.5.17"),
)


@lru_cache
def find_dialect(architecture: str, sglang_version: str) -> Dialect | None:
    """The dialect of a target class, None when the release cannot capture on it. InputError on a bad version."""
    for row in TABLE:
        if architecture in row.architectures and holds(sglang_version, row.since, row.until):
            return row.dialect
    return None


def dialect_of(architecture: str, sglang_version: str) -> Dialect:
    """`find_dialect`, with InputError when the release cannot capture on this class."""
    dialect = find_dialect(architecture, sglang_version)
    if dialect is None:
        raise InputError(unsupported(architecture, sglang_version))
    return dialect


def unsupported(architecture: str, sglang_version: str) -> str:
    """The one line that says why EAGLE-3 cannot be served on this class."""
    return f"target class {architecture} has no EAGLE-3 capture in SGLang {sglang_version} as far as our table knows"


def supported_architectures(sglang_version: str) -> tuple[str, ...]:
    """All target classes of a release that can be captured, sorted."""
    names = {name for row in TABLE if holds(sglang_version, row.since, row.until) for name in row.architectures}
    return tuple(sorted(names))
