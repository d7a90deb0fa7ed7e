from __future__ import annotations

from results.explain.explanation import explain
from results.server_info import is_server_info, server_info_row

ARGS = {"tp_size": 8, "speculative_num_steps": 1, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 2}


def test_the_average_is_marked_as_running() -> None:
    row = server_info_row(
        {**ARGS, "internal_states": [{"avg_spec_accept_length": 1.74}], "version": "0.5.23"}, "info.json"
    )
    assert (row.accept_length, row.sglang_version, row.tp_size) == (1.74, "0.5.23", 8)
    assert "running average" in row.notes[0]
    explanation = explain([row])
    metric = explanation.kind("metric")
    assert metric is not None
    assert (metric.verdict, "not this run's" in metric.evidence) == ("undecided", True)


def test_a_missing_key_is_no_zero() -> None:
    row = server_info_row({"internal_states": [{"last_gen_throughput": 812.0}]}, "info.json")
    assert row.accept_length is None
    assert row.output_throughput == 812.0
    assert "fewer than one log interval" in row.notes[0]
    explanation = explain([row])
    assert [verdict.verdict for verdict in explanation.verdicts] == ["undecided"] * 3
    assert "fewer than one log interval" in explanation.cause("config").evidence
    metric = explanation.kind("metric")
    assert metric is not None
    assert "per-request" in metric.evidence


def test_asked_and_effective_draft_tokens() -> None:
    for command in (
        "python -m sglang.launch_server --speculative-num-draft-tokens 8",
        ["x", "--speculative-num-draft-tokens=8"],
    ):
        content = {**ARGS, "internal_states": [{"avg_spec_accept_length": 1.74}], "launch_command": command}
        row = server_info_row(content, "info.json")
        assert row.num_draft_tokens == 8
        assert "asked for 8 draft tokens, the server runs 2" in row.notes[1]
        assert "(1,1,8) runs as (1,1,2)" in explain([row]).cause("config").evidence


def test_decoding_without_graphs_is_read_in_every_releases_words() -> None:
    off = {"decode": {"backend": "disabled", "max_bs": 32}, "prefill": {"backend": "breakable"}}
    on = {"decode": {"backend": "full", "max_bs": 32}, "prefill": {"backend": "disabled"}}
    for said, graphs in (
        ({"cuda_graph_config": off}, False),
        ({"cuda_graph_config": on, "disable_cuda_graph": False}, None),
        ({"cuda_graph_backend_decode": "disabled"}, False),
        ({"disable_decode_cuda_graph": True}, False),
        ({"disable_cuda_graph": True}, False),
        ({"cuda_graph_config": off, "device": "cpu"}, None),
    ):
        assert server_info_row({**ARGS, **said}, "info.json").cuda_graph is graphs, said


def test_a_flag_that_the_dump_says_is_not_set_is_named() -> None:
    row = server_info_row({**ARGS, "attention_backend": None}, "info.json")
    assert row.flags == {"attention_backend": None}


def test_what_a_dump_is() -> None:
    assert is_server_info({"internal_states": []})
    assert not is_server_info({"accept_length": 2.0})
    assert not is_server_info([1])
