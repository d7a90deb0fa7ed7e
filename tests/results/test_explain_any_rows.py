"""Whatever rows say, an explanation comes out, and it never claims what excluded rows would have said."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from results.attribution import GROUPS
from results.explain.explanation import explain
from results.external_row import ROLES
from results.external_row_file import read_row
from results.verdicts import OTHER_KINDS

TAPS = st.lists(st.integers(-2, 9), min_size=0, max_size=4)
SMALL = st.integers(1, 6)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "label": st.sampled_from(["a", "offline", "b"]),
        "target_class": st.sampled_from(["llama", "deepseek_v2", "gpt_oss", "Qwen3MoeForCausalLM", "unheard"]),
        "num_layers": st.integers(1, 9),
        "layout_ids": TAPS,
        "layout_taps": st.lists(st.integers(0, 9), max_size=4),
        "trained_taps": st.lists(st.integers(0, 9), max_size=4),
        "num_steps": SMALL,
        "eagle_topk": SMALL,
        "num_draft_tokens": SMALL,
        "tp_size": st.sampled_from([1, 2, 8]),
        "dp_size": SMALL,
        "dp_attention": st.booleans(),
        "sglang_version": st.sampled_from(["0.5.3", "0.5.9", "0.5.23", "main"]),
        "accept_length": st.floats(0, 8),
        "acceptance_by_position": st.lists(st.floats(0, 1), max_size=5),
        "histogram": st.lists(st.integers(0, 50), max_size=6),
        "completion_tokens": st.integers(0, 500),
        "verify_steps": st.integers(0, 500),
        "drafts": st.integers(0, 500),
        "accepted": st.integers(0, 500),
        "output_throughput": st.floats(0, 5000),
        "baseline_throughput": st.floats(0, 5000),
        "concurrency": st.sampled_from([1, 64]),
        "context_tokens": st.sampled_from([100, 4000]),
        "temperature": st.sampled_from([0, 1.0]),
        "radix_cache": st.booleans(),
        "cached_token_share": st.floats(0, 1),
        "cuda_graph": st.booleans(),
        "max_running_requests": st.sampled_from([48, 256]),
        "distinct_tokens": st.integers(0, 400),
        "output_tokens": st.integers(0, 500),
        "num_prompts": st.integers(0, 80),
        "role": st.sampled_from(ROLES),
        "flags": st.dictionaries(
            st.sampled_from(["SGLANG_SIMULATE_ACC_LEN", "page_size"]), st.sampled_from([0, 2, "x"])
        ),
    },
)


@given(st.lists(ROWS, max_size=5))
@settings(max_examples=120, deadline=None)
def test_an_explanation_always_comes_out(contents: list[dict[str, Any]]) -> None:
    explanation = explain([read_row(content, f"rows:{i}") for i, content in enumerate(contents)])
    content = explanation.to_json()
    json.dumps(content, allow_nan=False)
    assert [row["cause"] for row in content["verdicts"]] == list(GROUPS)
    kinds = [row["kind"] for row in content["other"]]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) <= set(OTHER_KINDS)
    for verdict in explanation.verdicts:
        assert verdict.evidence
        assert verdict.next or verdict.verdict != "undecided"
    shares = [verdict.share for verdict in explanation.verdicts if verdict.share]
    if shares and explanation.gap is not None and not explanation.gap["missing_corners"]:
        assert abs(sum(shares) - explanation.gap["value"]) < 1e-4


TAPS_SERVED = st.sampled_from([[2, 16, 29], [1, 16, 30], [0, 3, 31]])
LENGTHS = st.floats(1.0, 4.0).map(lambda length: round(length, 2))


@given(TAPS_SERVED, st.none() | TAPS_SERVED, st.booleans(), st.tuples(LENGTHS, LENGTHS), st.sampled_from([1, 8]))
@settings(max_examples=60, deadline=None)
def test_nothing_is_said_at_a_layout_that_one_side_does_not_name(
    taps: list[int], trained: list[int] | None, named_by_suspect: bool, lengths: tuple[float, float], tp_size: int
) -> None:
    chain = {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
    layout = {"layout_taps": taps, "trained_taps": trained}
    suspect = {**chain, "accept_length": lengths[0], "tp_size": 9 - tp_size, "role": "suspect"}
    reference = {**chain, "accept_length": lengths[1], "tp_size": tp_size, "role": "reference"}
    (suspect if named_by_suspect else reference).update(layout)
    explanation = explain([read_row(suspect, "rows:1"), read_row(reference, "rows:2")])
    assert "fixed layout" not in json.dumps(explanation.to_json())
    assert explanation.cause("parallelism").verdict != "yes"
    assert explanation.cause("parallelism").share is None
    if named_by_suspect and trained is not None and trained != taps:
        assert explanation.cause("layout").verdict != "no"


@given(st.lists(ROWS, min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_simulated_rows_never_name_a_cause(contents: list[dict[str, Any]]) -> None:
    forced = [{**content, "flags": {"SGLANG_SIMULATE_ACC_LEN": 3.0}, "role": "suspect"} for content in contents]
    explanation = explain([read_row(content, "row") for content in forced])
    assert [verdict.verdict for verdict in explanation.verdicts] == ["undecided"] * 3
