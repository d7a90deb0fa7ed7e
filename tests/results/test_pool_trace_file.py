"""Reading trace files and folders: what is there twice, what is cut off, what is no trace."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results.pool_trace_file import PoolTraceFile, pool_sizes, record_type
from results.traces import (
    Trace,
    TracedPrompt,
    TraceFacts,
    append_prompts,
    continuation,
    find_traces,
    missing_positions,
    parallel_flags,
    trace_flags,
    write_facts,
)
from search_spaces.errors import InputError


def write_segment(path: Path, rows: list[tuple[int, int]], rids: list[str], steps: int = 2, topk: int = 2) -> None:
    """Records (request, position) whose first token is the position, the last score the row's number."""
    nodes, parents = pool_sizes(steps, topk)
    header: dict[str, Any] = {"version": 1, "num_steps": steps, "eagle_topk": topk, "nodes": nodes, "parents": parents}
    records = np.zeros(len(rows), dtype=record_type(steps, topk))
    for i, (request, position) in enumerate(rows):
        records[i]["request"], records[i]["position"] = request, position
        records[i]["tokens"][0], records[i]["scores"][-1] = position, i
    path.write_bytes(json.dumps(header).encode() + b"\n" + records.tobytes())
    index = [json.dumps({"index": i, "rid": rid}) + "\n" for i, rid in enumerate(rids)]
    path.with_name(path.name + ".requests").write_text("".join(index))


def test_the_formats_of_writer_and_reader_are_one() -> None:
    writer = pytest.importorskip("actors.sglang_plugin.pool_trace")
    for steps in (1, 2, 5, 8):
        for topk in (1, 2, 4, 8):
            assert writer.record_type(steps, topk) == record_type(steps, topk)
            assert writer.pool_sizes(steps, topk) == pool_sizes(steps, topk)
    assert writer.TRACE_VERSION == 1


def test_rows_of_interleaved_requests(tmp_path: Path) -> None:
    file = tmp_path / "a.pools"
    write_segment(file, [(0, 5), (1, 9), (0, 6), (1, 8), (0, 5), (0, 7)], ["x", "y"])
    segment = PoolTraceFile(file)
    assert segment.request_ids == {"x", "y"}
    assert segment.records["position"][segment.rows_of("x")].tolist() == [5, 6, 7]
    assert segment.rows_of("x")[0] == 4  # written twice: the later one
    assert segment.records["position"][segment.rows_of("y")].tolist() == [8, 9]
    assert segment.rows_of("z").tolist() == []
    assert missing_positions(segment, "x", 5, 6).tolist() == [8, 9]
    assert not segment.truncated


def test_half_written_ends_are_not_seen(tmp_path: Path) -> None:
    file = tmp_path / "a.pools"
    write_segment(file, [(0, 5), (0, 6)], ["x"])
    file.write_bytes(file.read_bytes()[:-3])
    with file.with_name("a.pools.requests").open("a") as index:
        index.write('{"truncated": true}\n{"index": 1, "ri')
    segment = PoolTraceFile(file)
    assert segment.records["position"].tolist() == [5]
    assert (segment.request_ids, segment.truncated) == ({"x"}, True)


@pytest.mark.parametrize("content", [b"", b"{}\n", b'{"version": 2}\n', b"\x00\x01", b"[1]\n", b'{"version": 1'])
def test_what_is_no_trace(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.pools"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.pools: not a trace of version 1"):
        PoolTraceFile(file)
    with pytest.raises(InputError, match=r"b\.pools: the trace cannot be read"):
        PoolTraceFile(tmp_path / "b.pools")


FACTS = TraceFacts(layout=(2, 4, 5), tp_size=1, eagle_topk=2, num_steps=2, workload_id="w", ties="lowest_index")


def traced(rid: str, segment: str, length: int, extra: int = 2) -> TracedPrompt:
    return TracedPrompt(
        prompt_id=rid,
        request_id=rid,
        segment=segment,
        prompt_tokens=5,
        length=length,
        output_ids=tuple(range(100, 100 + length + extra)),
    )


def test_a_folder_of_two_segments(tmp_path: Path) -> None:
    folder = tmp_path / FACTS.folder_name
    write_facts(folder, FACTS)
    write_segment(folder / "1.pools", [(0, 5), (0, 6), (0, 7), (0, 8)], ["x"])
    write_segment(folder / "2.pools", [(0, 5), (1, 5)], ["y", "not finished"])
    append_prompts(folder, [traced("x", "1.pools", 4)])
    append_prompts(folder, [traced("y", "2.pools", 2), traced("one token", "2.pools", 1)])
    write_facts(folder, FACTS)
    (trace,) = find_traces(tmp_path)
    assert trace.facts == FACTS
    pieces = list(trace.pieces())
    assert [(p.prompt, p.pools.tokens[:, 0].tolist()) for p in pieces] == [(0, [5, 6, 7]), (1, [5])]
    assert pieces[0].pools.continuation.tolist() == [[101, 102], [102, 103], [103, 104]]


def test_unknown_continuations() -> None:
    assert continuation([7, 8, 9], 3, 3).tolist() == [[8, 9, -1], [9, -1, -1]]
    assert continuation([7], 1, 3).tolist() == []


def test_a_missing_position_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write_facts(folder, FACTS)
    write_segment(folder / "1.pools", [(0, 5), (0, 7)], ["x"])
    append_prompts(folder, [traced("x", "1.pools", 4)])
    with pytest.raises(InputError, match=r"1\.pools: prompt x: no pool at position 6"):
        list(Trace(folder).pieces())


def test_another_trace_in_the_folder(tmp_path: Path) -> None:
    write_facts(tmp_path / "t", FACTS)
    other = TraceFacts(layout=(2, 4, 5), tp_size=2, eagle_topk=2, num_steps=2, workload_id="w", ties="lowest_index")
    with pytest.raises(InputError, match=r"trace\.json: tp_size was 1 and is now 2"):
        write_facts(tmp_path / "t", other)


FLAGS = (("disable_overlap_schedule", True), ("kv_cache_dtype", "fp8_e5m2"))


def test_other_flags_are_another_trace(tmp_path: Path) -> None:
    flagged = replace(FACTS, flags=FLAGS)
    assert flagged.folder_name.startswith(FACTS.folder_name + "-")
    assert len({FACTS.folder_name, flagged.folder_name, replace(FACTS, flags=FLAGS[1:]).folder_name}) == 3
    for facts in (FACTS, flagged):
        write_facts(tmp_path / facts.folder_name, facts)
        write_facts(tmp_path / facts.folder_name, facts)
    assert [trace.facts for trace in find_traces(tmp_path)] == [FACTS, flagged]
    with pytest.raises(InputError, match="flags was"):
        write_facts(tmp_path / FACTS.folder_name, flagged)
    assert trace_flags((("enable_dp_attention", True), ("ep_size", 8), *FLAGS)) == FLAGS


def test_flags_of_parallelism_are_another_trace_too(tmp_path: Path) -> None:
    one, other = ((("ep_size", size),) for size in (2, 8))
    assert parallel_flags((*one, *FLAGS)) == one
    split = [replace(FACTS, parallel=one), replace(FACTS, parallel=other), replace(FACTS, flags=FLAGS, parallel=one)]
    whole = [FACTS, replace(FACTS, flags=FLAGS)]
    assert len({facts.folder_name for facts in (*split, *whole)}) == 5
    for facts in split:
        write_facts(tmp_path / facts.folder_name, facts)
        write_facts(tmp_path / facts.folder_name, facts)
    assert {trace.facts for trace in find_traces(tmp_path)} == set(split)
    with pytest.raises(InputError, match="parallel was"):
        write_facts(tmp_path / split[0].folder_name, FACTS)


def test_a_trace_from_before_flags_were_noted_has_none(tmp_path: Path) -> None:
    folder = tmp_path / FACTS.folder_name
    assert folder.name == "taps2-4-5-tp1-k2-s2-w"
    folder.mkdir()
    before = {key: value for key, value in vars(FACTS).items() if key not in ("flags", "parallel")}
    (folder / "trace.json").write_text(json.dumps(before))
    (trace,) = find_traces(tmp_path)
    assert trace.facts == FACTS
    write_facts(folder, FACTS)


@pytest.mark.parametrize(
    ("name", "content"),
    [("trace.json", "{"), ("trace.json", "{}"), ("prompts.jsonl", "{\n"), ("prompts.jsonl", '{"prompt_id": 1}\n')],
)
def test_damaged_folders(tmp_path: Path, name: str, content: str) -> None:
    write_facts(tmp_path / "t", FACTS)
    (tmp_path / "t" / name).write_text(content)
    with pytest.raises(InputError, match=name):
        find_traces(tmp_path)
