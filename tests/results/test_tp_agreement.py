"""Two traces at two TP sizes: equal ones agree everywhere, a draft fed otherwise agrees less, texts that part."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from results.pool_trace_file import pool_sizes, record_type
from results.tp_agreement import agreements, tp_agreement
from results.traces import Trace, TracedPrompt, TraceFacts, append_prompts, find_traces, write_facts
from search_spaces.config import Flags, Triple

TEXT = tuple(range(5, 30))
CHAIN = Triple(num_steps=3, eagle_topk=1, num_draft_tokens=4)


def trace(
    folder: Path,
    tp_size: int,
    draft: Callable[[int, int], int],
    *,
    topk: int = 1,
    texts: dict[str, tuple[int, ...]] | None = None,
    layout: tuple[int, ...] = (0, 3, 7),
    flags: Flags = (),
) -> Trace:
    """A trace whose best candidate at (position, depth from 0) is `draft`'s; the answers have 20 tokens."""
    texts = texts or {"a": TEXT, "b": TEXT}
    facts = TraceFacts(
        layout=layout, tp_size=tp_size, eagle_topk=topk, num_steps=3, workload_id="w", ties="lowest_index", flags=flags
    )
    path = folder / facts.folder_name
    write_facts(path, facts)
    nodes, parents = pool_sizes(3, topk)
    rows: NDArray[Any] = np.zeros(19 * len(texts), dtype=record_type(3, topk))
    for number in range(len(texts)):
        for position in range(19):
            row = rows[number * 19 + position]
            row["request"], row["position"] = number, 7 + position
            row["tokens"], row["scores"] = 0, np.linspace(0.1, 0.2, nodes)
            start = 0
            for depth in range(3):
                width = topk if depth == 0 else topk**2
                row["tokens"][start] = draft(position, depth)
                row["scores"][start] = 0.9 - depth / 10
                start += width
    head = f'{{"version": 1, "num_steps": 3, "eagle_topk": {topk}, "nodes": {nodes}, "parents": {parents}}}\n'
    (path / "0001.pools").write_bytes(head.encode() + rows.tobytes())
    index = "".join(f'{{"index": {number}, "rid": "{name}"}}\n' for number, name in enumerate(texts))
    (path / "0001.pools.requests").write_text(index)
    append_prompts(
        path,
        [
            TracedPrompt(
                prompt_id=name, request_id=name, segment="0001.pools", prompt_tokens=7, length=20, output_ids=text
            )
            for name, text in texts.items()
        ],
    )
    return Trace(path)


def right(position: int, depth: int) -> int:
    """What the text says next."""
    return TEXT[position + 1 + depth]


@pytest.mark.parametrize("topk", [1, 2])
def test_equal_drafts_agree_everywhere(tmp_path: Path, topk: int) -> None:
    found = tp_agreement(trace(tmp_path, 2, right, topk=topk), trace(tmp_path, 1, right, topk=topk))
    assert (found.tp_sizes, found.prompts, found.other_texts, found.positions) == ((1, 2), 2, 0, 38)
    assert found.by_depth == (1.0, 1.0, 1.0)
    assert found.by_quarter == (1.0, 1.0, 1.0, 1.0)
    assert found.difference is None


def test_a_draft_that_is_fed_otherwise_at_tp_2(tmp_path: Path) -> None:
    """From the middle of the answers on it proposes something else at depths 2 and 3, and loses accept length."""

    def worse(position: int, depth: int) -> int:
        return 0 if depth and position >= 10 else right(position, depth)

    found = tp_agreement(trace(tmp_path, 1, right), trace(tmp_path, 2, worse), CHAIN)
    assert found.by_depth == pytest.approx((1.0, 10 / 19, 10 / 19))
    assert found.by_quarter[:2] == (1.0, 1.0)
    assert found.by_quarter[3] == pytest.approx(1 / 3)
    assert found.difference is not None
    # 20 tokens take 5 rounds of four; with one draft a round from token 10 on: 3 rounds to 12, then 4 of two
    assert found.difference.value == pytest.approx(20 / 7 - 20 / 5, abs=0.2)
    assert "the draft proposes the same at 100.0%, 52.6%, 52.6% of 38 positions (depth 1 to 3)" in str(found)
    assert "accept length at (3,1,4): -1" in str(found)


def test_texts_that_part_are_compared_up_to_there(tmp_path: Path) -> None:
    other = (*TEXT[:6], 1, *TEXT[7:])
    found = tp_agreement(trace(tmp_path, 1, right), trace(tmp_path, 2, right, texts={"a": other, "c": TEXT}))
    assert (found.prompts, found.other_texts, found.positions) == (1, 1, 6)
    assert "1 of 1 texts differ" in str(found)


def test_traces_of_other_flags_say_nothing_about_parallelism(tmp_path: Path) -> None:
    fp8: Flags = (("kv_cache_dtype", "fp8_e5m2"),)
    one, other = trace(tmp_path, 1, right), trace(tmp_path, 8, right, flags=fp8)
    with pytest.raises(ValueError, match="not of the same flags"):
        tp_agreement(one, other)
    suspect: Flags = (("ep_size", 8), *fp8)
    assert agreements([one, other], (0, 3, 7), CHAIN, suspect) == ()
    (found,) = agreements([one, other, trace(tmp_path, 1, right, flags=fp8)], (0, 3, 7), CHAIN, suspect)
    assert found.tp_sizes == (1, 8)


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    one = trace(tmp_path, 1, right)
    with pytest.raises(ValueError, match="not of the same eagle_topk"):
        tp_agreement(one, trace(tmp_path, 2, right, topk=2))
    with pytest.raises(ValueError, match="share no position"):
        tp_agreement(one, trace(tmp_path, 2, right, texts={"c": TEXT}))


def test_pairs_of_a_study(tmp_path: Path) -> None:
    for tp_size in (4, 1, 2):
        trace(tmp_path, tp_size, right)
    trace(tmp_path, 1, right, topk=2)
    trace(tmp_path, 2, right, layout=(2, 4, 5))
    traces = find_traces(tmp_path)
    assert [found.tp_sizes for found in agreements(traces, (0, 3, 7), CHAIN)] == [(1, 2), (1, 4), (2, 4)]
    assert agreements(traces, (2, 4, 5), CHAIN) == ()
    deeper = Triple(num_steps=4, eagle_topk=1, num_draft_tokens=5)
    assert agreements(traces, (0, 3, 7), deeper) == ()
    shutil.rmtree(tmp_path)
    assert agreements(find_traces(tmp_path), (0, 3, 7), CHAIN) == ()
