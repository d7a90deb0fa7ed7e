"""Decode lines as SGLang prints them in several versions and settings."""

from __future__ import annotations

import pytest

from results.explain.explanation import explain
from results.sglang_log import is_sglang_log, log_row, parse_decode_line, read_log

DEFAULT = (
    "[2026-11-29 12:00:40 TP0] Decode batch, #running-req: 8, #token: 9216, token usage: 0.04, accept len: 2.41,"
    " accept rate: 0.47, cuda graph: True, gen throughput (token/s): 1044.10, #queue-req: 0"
)
WARNING = (
    "[2026-11-29 12:00:01] WARNING speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when"
    " speculative_eagle_topk == 1"
)
ARGS = (
    "[2026-11-29 12:00:00] server_args=ServerArgs(model_path='target', speculative_draft_model_path='a, b=1',"
    " tp_size=8, dp_size=1, enable_dp_attention=False, disable_radix_cache=True, max_running_requests=48,"
    " speculative_algorithm='EAGLE3', speculative_num_steps=3, speculative_eagle_topk=1,"
    " speculative_num_draft_tokens=4, chunked_prefill_size=8192, mem_fraction_static=0.8, page_size=1)"
)


def test_the_default_line() -> None:
    line = parse_decode_line(DEFAULT)
    assert line is not None
    assert (line.running_requests, line.queued_requests) == (8, 0)
    assert (line.accept_length, line.accept_rate) == (2.41, 0.47)
    assert (line.graph, line.throughput) == (True, 1044.10)


@pytest.mark.parametrize(
    "line",
    [
        DEFAULT.replace("#queue-req: 0", "#queue-req: 0, est. decode TFLOPS/s (per GPU): 1.20"),
        DEFAULT.replace("cuda graph", "npu graph"),
        DEFAULT.replace(
            "#token: 9216, token usage: 0.04", "#full token: 9, full token usage: 0.04, swa token usage: 0.1"
        ),
        DEFAULT.replace("Decode batch,", "Decode batch [1204],"),
        DEFAULT.replace("Decode batch, ", "Decode batch. "),
        DEFAULT.replace("accept len: 2.41, accept rate: 0.47", "accept rate: 0.47, cap len: 2.60, accept len: 2.41"),
        "2026-11-29 12:00:40 INFO scheduler: " + DEFAULT.split("] ", 1)[1],
    ],
)
def test_lines_of_other_versions(line: str) -> None:
    decode = parse_decode_line(line)
    assert decode is not None
    assert (decode.accept_length, decode.graph, decode.throughput, decode.queued_requests) == (2.41, True, 1044.10, 0)


def test_without_speculation_and_other_lines() -> None:
    plain = parse_decode_line(DEFAULT.replace(" accept len: 2.41, accept rate: 0.47,", ""))
    assert plain is not None
    assert plain.accept_length is None
    assert parse_decode_line(WARNING) is None


def test_a_whole_log() -> None:
    lines = [ARGS, WARNING, DEFAULT, DEFAULT.replace("2.41", "2.61").replace("0.47", "0.54")]
    lines.append(DEFAULT.replace("TP0", "TP1").replace("2.41", "9.99"))
    lines.append("[x TP0] Prefill batch, #new-seq: 1, #new-token: 90, #cached-token: 10, token usage: 0.00")
    assert is_sglang_log("\n".join(lines))
    row = log_row(read_log(lines), "server.log")
    assert row.accept_length == pytest.approx(2.51)
    assert (row.num_steps, row.eagle_topk, row.num_draft_tokens, row.tp_size) == (3, 1, 4, 8)
    assert (row.radix_cache, row.max_running_requests, row.cuda_graph) == (False, 48, True)
    assert row.cached_token_share == 0.0
    assert row.concurrency == 8
    assert row.flags["speculative_draft_model_path"] == "a, b=1"
    assert any("adjusted" in note for note in row.notes)
    assert "accept rate is (AL - 1)/(n - 1) with n = 4" in row.notes


def test_the_other_acceptance_rate_is_named() -> None:
    old = DEFAULT.replace("accept rate: 0.47", "accept rate: 0.60")
    assert any("AL/n" in note for note in log_row(read_log([ARGS, old]), "x").notes)
    neither = DEFAULT.replace("accept rate: 0.47", "accept rate: 0.90")
    assert any("fits neither" in note for note in log_row(read_log([ARGS, neither]), "x").notes)


def test_a_queue_behind_the_cap() -> None:
    line = DEFAULT.replace("#running-req: 8", "#running-req: 48").replace("#queue-req: 0", "#queue-req: 16")
    row = log_row(read_log([ARGS, line]), "x")
    assert (row.concurrency, row.max_running_requests) == (64, 48)


def test_draft_tokens_follow_from_length_and_rate_when_the_arguments_are_missing() -> None:
    line = DEFAULT.replace("2.41", "1.74").replace("0.47", "0.74")
    row = log_row(read_log([WARNING, line]), "x")
    assert (row.num_steps, row.eagle_topk, row.num_draft_tokens) == (1, 1, 2)
    explanation = explain([row])
    assert [verdict.verdict for verdict in explanation.verdicts] == ["yes", "no", "no"]
    assert "ceiling 2" in explanation.cause("config").evidence
    unsure = log_row(read_log([DEFAULT, DEFAULT.replace("0.47", "0.90")]), "x")
    assert unsure.num_draft_tokens is None


def test_arguments_as_a_mapping_and_the_ids_they_override() -> None:
    override = '{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 2, 5]}}'
    line = (
        f"[x] server_args={{'model_path': 'm', 'json_model_override_args': '{override}', 'tp_size': 2, 'dp_size': 1}}"
    )
    row = log_row(read_log([line, DEFAULT]), "x")
    assert (row.tp_size, row.layout_ids) == (2, (-1, 2, 5))


def test_a_shared_template_is_no_warm_cache() -> None:
    prefill = "[x] Prefill batch, #new-seq: 1, #new-token: 28, #cached-token: 9, token usage: 0.01"
    assert log_row(read_log([prefill, DEFAULT]), "x").cached_token_share == 0.0
    rerun = prefill.replace("#new-token: 28, #cached-token: 9", "#new-token: 1, #cached-token: 36")
    assert log_row(read_log([rerun, DEFAULT]), "x").cached_token_share == pytest.approx(36 / 37)
