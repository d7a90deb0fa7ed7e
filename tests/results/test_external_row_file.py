from __future__ import annotations

import json

import pytest

from results.external_row_file import FIELDS, read_rows
from search_spaces.errors import InputError

DOCUMENTED = """label target_class num_layers hidden_size layout_ids layout_taps trained_taps num_steps eagle_topk
num_draft_tokens tp_size dp_size dp_attention sglang_version accept_length acceptance_by_position histogram
completion_tokens verify_steps drafts accepted output_throughput baseline_throughput concurrency context_tokens
temperature radix_cache cached_token_share cuda_graph chunked_prefill_size max_running_requests distinct_tokens
output_tokens prompt_set num_prompts role flags"""


def test_exactly_the_documented_fields() -> None:
    assert tuple(DOCUMENTED.split()) == FIELDS


def test_rows_with_their_source() -> None:
    lines = [
        '{"accept_length": 2, "tp_size": 8.0, "layout_ids": [-1, 2, 30], "label": null}',
        "",
        '{"role": "baseline"}',
    ]
    first, second = read_rows(lines, "rows.jsonl")
    assert (first.accept_length, first.tp_size, first.layout_ids, first.source) == (2.0, 8, (-1, 2, 30), "rows.jsonl:1")
    assert (second.role, second.source) == ("baseline", "rows.jsonl:3")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"acceptlength": 2.0}', ("rows.jsonl:1", "'acceptlength'", "did you mean accept_length?")),
        ('{"source": "x"}', ("unknown key 'source'",)),
        ('{"accept_length": "2.0"}', ("accept_length", '"2.0"')),
        ('{"accept_length": NaN}', ("rows.jsonl:1", "NaN")),
        ('{"accept_length": true}', ("accept_length",)),
        ('{"num_steps": 0}', ("num_steps", "at least 1")),
        ('{"num_steps": 1.5}', ("num_steps",)),
        ('{"tp_size": 1, "tp_size": 2}', ("tp_size", "twice")),
        ('{"acceptance_by_position": [0.5, 1.5]}', ("acceptance_by_position", "0 to 1")),
        ('{"histogram": 3}', ("histogram", "a list")),
        ('{"role": "victim"}', ("role", "suspect, reference, baseline, control")),
        ('{"radix_cache": 1}', ("radix_cache", "true or false")),
        ('{"flags": []}', ("flags", "a mapping")),
        ("[1]", ("a row is a JSON object",)),
        ("{", ("rows.jsonl:1", "not a JSON object")),
        ("[" * 100_000, ("rows.jsonl:1",)),
    ],
)
def test_refusals_name_file_line_and_key(line: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        read_rows([line], "rows.jsonl")
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_second_line_is_named() -> None:
    with pytest.raises(InputError, match=r"rows\.jsonl:2: unknown key"):
        read_rows(['{"tp_size": 1}', json.dumps({"tp": 1})], "rows.jsonl")
