from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_facts import HEADS, context, setting

from search_spaces.config import Triple
from search_spaces.rulings import Illegal, Legal, RuleContext
from search_spaces.sglang_rules import launch_notes, resolve_setting, rule_table
from search_spaces.triple_rules import auto_triple, tree_pool

Numbers = tuple[int | None, int | None, int | None]


def run(numbers: Numbers, where: RuleContext | None = None, **more: Any) -> Legal | Illegal:
    return resolve_setting(setting(*numbers, **more), where or context())


def triple_of(ruling: Legal | Illegal) -> tuple[int, int, int]:
    assert isinstance(ruling, Legal), ruling
    triple = ruling.effective.triple
    assert triple is not None
    return (triple.num_steps, triple.eagle_topk, triple.num_draft_tokens)


def refusal_of(ruling: Legal | Illegal) -> tuple[str, str]:
    assert isinstance(ruling, Illegal), ruling
    return (ruling.rule, ruling.message)


@pytest.mark.parametrize(
    ("asked", "runs"), [((1, 1, 8), (1, 1, 2)), ((2, 1, 2), (2, 1, 3)), ((4, 1, 24), (4, 1, 5)), ((3, 1, 4), (3, 1, 4))]
)
def test_topk_one_fixes_the_tokens(asked: Numbers, runs: tuple[int, int, int]) -> None:
    ruling = run(asked)
    assert triple_of(ruling) == runs
    assert isinstance(ruling, Legal)
    assert [adjustment.rule for adjustment in ruling.adjustments] == ([] if asked == runs else ["topk1_tokens"])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((1, 4, 8), "need n-1=7 > pool 4"),
        ((2, 2, 8), "need n-1=7 > pool 6"),
        ((1, 8, 10), "need n-1=9 > pool 8"),
        ((5, 8, 266), "need n-1=265 > pool 264"),
    ],
)
def test_more_tokens_than_the_tree_has(asked: Numbers, message: str) -> None:
    assert refusal_of(run(asked)) == ("tree_pool", message)


@pytest.mark.parametrize(
    ("asked", "pool"),
    [((2, 4, 8), 20), ((3, 2, 8), 10), ((4, 4, 32), 52), ((3, 10, 60), 210), ((5, 8, 64), 264), ((1, 8, 8), 8)],
)
def test_trees_that_are_large_enough(asked: tuple[int, int, int], pool: int) -> None:
    assert tree_pool(asked[0], asked[1]) == pool
    assert triple_of(run(asked)) == asked


@pytest.mark.parametrize("asked", [(3, 2, 2), (5, 2, 4), (5, 4, 4), (7, 8, 4)])
def test_fewer_tokens_than_the_path_is_long(asked: tuple[int, int, int]) -> None:
    rule, message = refusal_of(run(asked))
    assert rule == "tokens_below_steps"
    assert message == f"need num_draft_tokens {asked[2]} >= num_steps + 1 = {asked[0] + 1} when eagle_topk > 1"
    assert triple_of(run((3, 4, 4))) == (3, 4, 4)


def test_the_path_rule_is_as_old_as_trees_in_the_new_worker() -> None:
    assert triple_of(run((3, 2, 2), context(version="0.5.12"))) == (3, 2, 2)
    assert refusal_of(run((3, 2, 2), context(version="0.5.13")))[0] == "tokens_below_steps"


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        ((None, 4, None), "num_steps and num_draft_tokens are unset"),
        ((3, None, 4), "eagle_topk is unset"),
        ((3, 4, None), "num_draft_tokens is unset"),
    ],
)
def test_all_three_or_none(asked: Numbers, missing: str) -> None:
    assert refusal_of(run(asked)) == ("all_or_none", f"give all three or none: {missing}")


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_a_chain_may_leave_its_tokens_out(steps: int) -> None:
    ruling = run((steps, 1, None))
    assert triple_of(ruling) == (steps, 1, steps + 1)
    assert isinstance(ruling, Legal)
    assert [adjustment.rule for adjustment in ruling.adjustments] == ["topk1_tokens"]


@pytest.mark.parametrize(
    ("architecture", "runs"),
    [
        ("LlamaForCausalLM", (5, 4, 8)),
        ("Qwen3ForCausalLM", (3, 1, 4)),
        ("DeepseekV3ForCausalLM", (3, 1, 4)),
        ("GptOssForCausalLM", (3, 1, 4)),
    ],
)
def test_none_is_chosen_by_architecture(architecture: str, runs: tuple[int, int, int]) -> None:
    ruling = run((None, None, None), context(architecture))
    assert triple_of(ruling) == runs
    assert isinstance(ruling, Legal)
    assert [adjustment.rule for adjustment in ruling.adjustments] == ["auto_triple"]
    assert auto_triple("Grok1ForCausalLM") == (5, 4, 8)


@pytest.mark.parametrize(
    ("args", "verdict"),
    [
        ({"attention_backend": "trtllm_mha"}, "backend_topk"),
        ({"decode_attention_backend": "trtllm_mha"}, "backend_topk"),
        ({"attention_backend": "trtllm_mla", "page_size": 64}, "page_size_topk"),
        ({"attention_backend": "trtllm_mla"}, "page_size_topk"),
        ({"attention_backend": "flashmla"}, "backend_topk"),
        ({"attention_backend": "fa3", "page_size": 64}, None),
        ({"attention_backend": "triton", "page_size": 16}, None),
        ({"attention_backend": "flashinfer"}, None),
        ({"attention_backend": "fa4"}, None),
        ({"attention_backend": "torch_native"}, "backend_speculation"),
        ({"attention_backend": "flex_attention"}, "backend_speculation"),
        ({"page_size": 64}, None),
        ({"speculative_use_rejection_sampling": True}, "rejection_sampling_topk"),
        ({"enable_unified_memory": True}, "chain_only_topk"),
    ],
)
def test_backends_and_trees(args: dict[str, object], verdict: str | None) -> None:
    ruling = run((3, 4, 8), context(**args))
    assert (ruling.rule if isinstance(ruling, Illegal) else None) == verdict
    if verdict not in (None, "backend_speculation"):
        assert triple_of(run((3, 1, 4), context(**args))) == (3, 1, 4)


def test_paged_trees_are_versioned() -> None:
    paged = {"attention_backend": "triton", "page_size": 64}
    assert isinstance(run((3, 4, 8), context(version="0.5.13", **paged)), Legal)
    rule, message = refusal_of(run((3, 4, 8), context(version="0.5.12", **paged)))
    assert (rule, message) == (
        "page_size_topk",
        "eagle_topk 4 with page_size 64 needs attention backend flashinfer or fa3, not triton",
    )


def test_a_latent_draft_on_flashinfer_needs_a_chain() -> None:
    mla = HEADS | {"kv_lora_rank": 512}
    assert refusal_of(run((3, 4, 8), context(draft_config=mla, attention_backend="flashinfer")))[0] == "backend_topk"
    assert isinstance(run((3, 4, 8), context(draft_config=HEADS, attention_backend="flashinfer")), Legal)


def test_auto_numbers_meet_the_backend_rule_too() -> None:
    assert refusal_of(run((None, None, None), context(attention_backend="trtllm_mha")))[0] == "backend_topk"


def test_adaptive_speculation() -> None:
    where = context(speculative_adaptive=True)
    assert triple_of(run((3, 1, 16), where)) == (3, 1, 4)
    assert triple_of(run((None, None, None), where)) == (3, 1, 4)
    assert refusal_of(run((2, 1, 3), where)) == (
        "adaptive_steps",
        "speculative_adaptive knows num_steps 1, 3, 5, 7, not 2",
    )
    assert triple_of(run((3, 4, 8), where)) == (3, 4, 8)


@pytest.mark.parametrize(
    ("tp_size", "config", "part"),
    [
        (3, {"num_attention_heads": 32, "num_key_value_heads": 8}, "the target's 32 attention heads"),
        (8, {"num_attention_heads": 24, "num_key_value_heads": 6}, "the target's 6 key-value heads"),
        (4, {"num_attention_heads": 24, "num_key_value_heads": 3}, "the target's 3 key-value heads"),
    ],
)
def test_heads_that_cannot_be_split(tp_size: int, config: dict[str, int], part: str) -> None:
    ruling = run((3, 1, 4), context(target_config=config, draft_config={}), tp_size=tp_size)
    assert refusal_of(ruling) == ("tp_divides_heads", f"{part} cannot be split over {tp_size} ranks")
    nested = context(target_config={"text_config": config | {"num_hidden_layers": 4}}, draft_config={})
    assert refusal_of(run((3, 1, 4), nested, tp_size=tp_size))[0] == "tp_divides_heads"


def test_heads_that_can_be_split_or_copied() -> None:
    for tp_size in (1, 2, 4, 8, 16, 32):
        assert isinstance(run((3, 1, 4), tp_size=tp_size), Legal)
    mla = {"num_attention_heads": 64, "num_key_value_heads": 3, "kv_lora_rank": 512}
    assert isinstance(run((3, 1, 4), context(target_config=mla), tp_size=4), Legal)
    rule, message = refusal_of(run((3, 1, 4), context(draft_config={"num_attention_heads": 6}), tp_size=4))
    assert (rule, message) == ("tp_divides_heads", "the draft's 6 attention heads cannot be split over 4 ranks")


def test_attention_groups_split_fewer_ways() -> None:
    config = {"num_attention_heads": 12, "num_key_value_heads": 4}
    alone = context(target_config=config, draft_config={})
    grouped = context(target_config=config, draft_config={}, enable_dp_attention=True, dp_size=2)
    assert refusal_of(run((3, 1, 4), alone, tp_size=8))[0] == "tp_divides_heads"
    assert isinstance(run((3, 1, 4), grouped, tp_size=8), Legal)
    assert refusal_of(run((3, 1, 4), grouped, tp_size=1))[0] == "dp_divides_tp"


@pytest.mark.parametrize(
    ("args", "rule"),
    [
        ({"pp_size": 2}, "pipeline_parallel"),
        (
            {"speculative_algorithm": "STANDALONE", "enable_dp_attention": True, "dp_size": 2},
            "standalone_dp_attention",
        ),
        ({"nnodes": 3}, "nodes_divide_tp"),
    ],
)
def test_placements_that_are_refused(args: dict[str, object], rule: str) -> None:
    assert refusal_of(run((3, 1, 4), context(**args), tp_size=2))[0] == rule


def test_quantised_experts_need_whole_blocks() -> None:
    config = HEADS | {"moe_intermediate_size": 1536, "quantization_config": {"weight_block_size": [128, 128]}}
    assert isinstance(run((3, 1, 4), context(target_config=config), tp_size=4), Legal)
    assert refusal_of(run((3, 1, 4), context(target_config=config), tp_size=8)) == (
        "tp_divides_moe",
        "moe_intermediate_size 1536 over 8 ranks is not a multiple of the block of 128",
    )
    assert isinstance(run((3, 1, 4), context(target_config=config, ep_size=8), tp_size=8), Legal)


def test_spellings_of_one_layout_are_one_server() -> None:
    null = context("Qwen3ForCausalLM", 36)
    shipped = context("Qwen3ForCausalLM", 36, aux_ids=(1, 17, 32))
    copied = context("Qwen3ForCausalLM", 36, aux_ids=(2, 18, 33))
    rulings = [
        run((3, 1, 4), null, layout="default"),
        run((3, 1, 4), null, layout="shipped"),
        run((3, 1, 4), shipped, layout="shipped"),
        run((3, 1, 4), null, layout="2,18,33"),
    ]
    assert all(isinstance(ruling, Legal) for ruling in rulings)
    assert len({ruling.effective.identity for ruling in rulings if isinstance(ruling, Legal)}) == 1
    assert [ruling.ids for ruling in rulings if isinstance(ruling, Legal)] == [None, None, (1, 17, 32), (1, 17, 32)]
    off_by_one = run((3, 1, 4), copied, layout="shipped")
    assert isinstance(off_by_one, Legal)
    assert off_by_one.effective.layout == (3, 19, 34)


def test_layouts_that_are_refused() -> None:
    kimi = context("KimiK25ForConditionalGeneration", 61, aux_ids=(-1, 2, 30))
    assert refusal_of(run((3, 1, 4), kimi, layout="shipped")) == (
        "layout_not_expressible",
        "-1 never matches on this class, 2 of 3 states would be captured",
    )
    assert refusal_of(run((3, 1, 4), layout="5,2"))[0] == "layout_not_expressible"
    rule, message = refusal_of(run((3, 1, 4), context(num_layers=4), layout="default"))
    assert rule == "layout_not_expressible"
    assert "give taps explicitly" in message
    assert refusal_of(run((3, 1, 4), context("OPTForCausalLM")))[0] == "target_unsupported"
    off = context(draft_config=HEADS | {"eagle_config": {"use_aux_hidden_state": False}})
    assert refusal_of(run((3, 1, 4), off))[0] == "aux_hidden_state_off"


def test_a_draft_takes_as_many_taps_as_its_fc_is_wide() -> None:
    three = context(fc_in_features=3 * 4096)
    assert isinstance(run((3, 1, 4), three, layout="0,3,31"), Legal)
    assert refusal_of(run((3, 1, 4), three, layout="0,3,16,31")) == (
        "layout_fc_width",
        "4 taps x 4096 = 16384 wide, the draft's fc takes 12288 (3 taps)",
    )
    other = context(fc_in_features=3 * 7168, draft_config=HEADS | {"target_hidden_size": 7168})
    assert isinstance(run((3, 1, 4), other, layout="0,3,31"), Legal)
    declared = context(draft_config=HEADS | {"num_aux_hidden_states": 5})
    assert refusal_of(run((3, 1, 4), declared, layout="0,3,31"))[0] == "layout_fc_width"


def test_the_first_reason_is_the_layout_then_the_placement() -> None:
    assert refusal_of(run((1, 4, 8), layout="5,2", tp_size=3))[0] == "layout_not_expressible"
    assert refusal_of(run((1, 4, 8), tp_size=3))[0] == "tp_divides_heads"


def test_swept_flags_end_up_as_sglang_leaves_them() -> None:
    ruling = run((3, 1, 4), flags=(("attention_backend", "trtllm_mla"), ("page_size", 1)))
    assert isinstance(ruling, Legal)
    assert ruling.effective.flags == (("attention_backend", "trtllm_mla"), ("page_size", 64))
    assert [adjustment.rule for adjustment in ruling.adjustments] == ["page_size_forced"]
    mixed = (("enable_mixed_chunk", True),)
    now, before = run((3, 1, 4), flags=mixed), run((3, 1, 4), context(version="0.5.18"), flags=mixed)
    assert isinstance(now, Legal)
    assert isinstance(before, Legal)
    assert (now.effective.flags, before.effective.flags) == (mixed, (("enable_mixed_chunk", False),))


def test_swept_flags_win_over_fixed_ones() -> None:
    where = context(attention_backend="trtllm_mha")
    assert isinstance(run((3, 4, 8), where, flags=(("attention_backend", "fa3"),)), Legal)


def test_the_cap_on_running_requests_is_noted() -> None:
    notes = launch_notes(context())
    assert [note.rule for note in notes] == ["running_requests_cap"]
    assert "48" in notes[0].message
    assert launch_notes(context(max_running_requests=256)) == ()


numbers = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 300))


@given(numbers, st.sampled_from([(), (("page_size", 16),), (("speculative_adaptive", True),)]))
def test_what_runs_runs_as_itself(asked: tuple[int, int, int], flags: Any) -> None:
    ruling = run(asked, flags=flags)
    if isinstance(ruling, Illegal):
        return
    again = resolve_setting(setting(*triple_of(ruling), layout="2,16,29", flags=ruling.effective.flags), context())
    assert isinstance(again, Legal)
    assert again.effective == ruling.effective
    assert again.effective.identity == ruling.effective.identity
    assert again.adjustments == ()


@given(numbers)
def test_legal_trees_hold_their_tokens(asked: tuple[int, int, int]) -> None:
    ruling = run(asked)
    steps, topk, tokens = asked if isinstance(ruling, Illegal) else triple_of(ruling)
    fits = steps + 1 <= tokens <= tree_pool(steps, topk) + 1
    assert fits == isinstance(ruling, Legal)
    assert (tree_pool(steps, topk) == steps) == (topk == 1)


def test_pool_counts_the_nodes_that_a_draft_proposes() -> None:
    for steps, topk in itertools.product(range(1, 8), range(1, 8)):
        assert tree_pool(steps, topk) == topk + sum(topk * topk for _ in range(steps - 1))


def test_every_rule_names_its_source() -> None:
    names = {line.name for line in rule_table()}
    wanted = {
        "topk1_tokens",
        "tree_pool",
        "tokens_below_steps",
        "all_or_none",
        "backend_topk",
        "layout_not_expressible",
    }
    assert wanted <= names
    assert all(".py" in line.source for line in rule_table())
    assert Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2).ceiling == 2
