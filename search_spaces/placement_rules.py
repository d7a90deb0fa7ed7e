"""Rules on how a model is split: tensor, data and pipeline parallelism."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces.engine_args import EngineArgs
from search_spaces.rulings import RuleContext
from search_spaces.versions import holds


@dataclass(frozen=True, slots=True)
class PlacementCase:
    """What a rule on the placement may look at."""

    tp_size: int
    args: EngineArgs
    context: RuleContext

    @property
    def attention_tp_size(self) -> int:
        return max(1, self.tp_size // self.args.attention_dp_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementRule:
    """One rule, true in releases `since` <= v < `until`; `check` returns a refusal's message or None."""

    name: str
    source: str
    check: Callable[[PlacementCase], str | None]
    since: str | None = None
    until: str | None = None


def _pipeline(case: PlacementCase) -> str | None:
    pp = case.args.size("pp_size")
    if pp > 1 and case.args.algorithm != "EAGLE":
        return f"pp_size {pp}: pipeline parallelism serves EAGLE only, not {case.args.algorithm}"
    return None


def _standalone(case: PlacementCase) -> str | None:
    if case.args.algorithm == "STANDALONE" and case.args.attention_dp_size > 1:
        return f"STANDALONE does not support data-parallel attention (dp_size {case.args.attention_dp_size})"
    return None


def _dp_divides_tp(case: PlacementCase) -> str | None:
    dp = case.args.attention_dp_size
    return None if case.tp_size % dp == 0 else f"tp_size {case.tp_size} cannot be split into {dp} attention groups"


def _nodes(case: PlacementCase) -> str | None:
    nodes, world = case.args.size("nnodes"), case.tp_size * case.args.size("pp_size")
    return None if world % nodes == 0 else f"tp_size {case.tp_size} cannot be split over {nodes} nodes"


def _heads(case: PlacementCase) -> str | None:
    size = case.attention_tp_size
    for role, facts in (("target", case.context.target), ("draft", case.context.draft)):
        problem = _unsplittable(facts.text_config, size)
        if problem is not None:
            return f"the {role}'s {problem} cannot be split over {size} ranks"
    return None


def _unsplittable(config: Mapping[str, Any], size: int) -> str | None:
    heads = config.get("num_attention_heads")
    if not isinstance(heads, int):
        return None
    if heads % size:
        return f"{heads} attention heads"
    kv_heads = config.get("num_key_value_heads", heads)
    if is_mla(config) or not isinstance(kv_heads, int) or kv_heads < 1:
        return None
    # fewer heads than ranks are replicated, which needs the division the other way round
    divides = kv_heads % size == 0 if kv_heads >= size else size % kv_heads == 0
    return None if divides else f"{kv_heads} key-value heads"


def _moe_blocks(case: PlacementCase) -> str | None:
    config = case.context.target.text_config
    quantization = config.get("quantization_config") or case.context.target.config.get("quantization_config")
    blocks = quantization.get("weight_block_size") if isinstance(quantization, Mapping) else None
    width = config.get("moe_intermediate_size")
    if not blocks or not isinstance(width, int):
        return None
    experts = case.args.size("ep_size")
    if case.tp_size % experts:
        return f"tp_size {case.tp_size} cannot be split over ep_size {experts}"
    size = case.tp_size // experts // case.args.size("moe_dp_size")
    if size < 1 or width % size or (width // size) % blocks[0]:
        return f"moe_intermediate_size {width} over {max(size, 1)} ranks is not a multiple of the block of {blocks[0]}"
    return None


def is_mla(text_config: Mapping[str, Any]) -> bool:
    """True for latent attention, whose cache has no key-value heads to split."""
    return bool(text_config.get("kv_lora_rank"))


PLACEMENT_RULES: tuple[PlacementRule, ...] = (
    PlacementRule(
        name="pipeline_parallel",
        source="arg_groups/validation_hook.py, check_pipeline_parallel_compat",
        check=_pipeline,
    ),
    PlacementRule(
        name="standalone_dp_attention",
        source="arg_groups/speculative_hook.py, _handle_eagle_family",
        check=_standalone,
    ),
    PlacementRule(name="dp_divides_tp", source="arg_groups/parallel_hook.py (attention groups)", check=_dp_divides_tp),
    PlacementRule(name="nodes_divide_tp", source="arg_groups/validation_hook.py, check_server_args", check=_nodes),
    PlacementRule(
        name="tp_divides_heads",
        source="models/llama.py, LlamaAttention (the same asserts in every class, the draft's too)",
        check=_heads,
    ),
    PlacementRule(
        name="tp_divides_moe",
        source="model_executor/model_runner_components/moe_ep_setup.py, check_quantized_moe_compatibility",
        check=_moe_blocks,
        since="0.5.18",
    ),
)


def judge_placement(case: PlacementCase) -> tuple[str, str] | None:
    """(rule, message) of the first refusal, or None."""
    for rule in PLACEMENT_RULES:
        if holds(case.context.sglang_version, rule.since, rule.until):
            message = rule.check(case)
            if message is not None:
                return (rule.name, message)
    return None
