"""Keeping segments: the order of writes, what a dead writer leaves, prompts that are there already."""

from __future__ import annotations

from pathlib import Path

import pytest

from results import trace_segments
from results.trace_segments import TracedSegment, keep_segments, read_segments
from results.traces import TracedPrompt, TraceFacts, read_prompts
from search_spaces.errors import EnvironmentProblem, InputError

FACTS = TraceFacts(layout=(2, 4, 5), tp_size=1, eagle_topk=2, num_steps=3, workload_id="w", ties="libstdcxx")


def segment(*names: str) -> TracedSegment:
    prompts = tuple(
        TracedPrompt(
            prompt_id=name, request_id=f"{name}-1", segment="0007.pools", prompt_tokens=3, length=2, output_ids=(4, 5)
        )
        for name in names
    )
    return TracedSegment(pools=b"pools of " + names[0].encode(), requests=b"index", prompts=prompts)


def test_segments_are_numbered_in_the_study(tmp_path: Path) -> None:
    folder = keep_segments(tmp_path, FACTS, [segment("a", "b"), segment("c")])
    keep_segments(tmp_path, FACTS, [segment("b", "c"), segment("c", "d")])
    assert [(p.prompt_id, p.segment) for p in read_prompts(folder)] == [
        ("a", "0001.pools"),
        ("b", "0001.pools"),
        ("c", "0002.pools"),
        ("d", "0003.pools"),
    ]
    assert (folder / "0003.pools").read_bytes() == b"pools of c"
    kept = read_segments(folder)
    assert [s.pools for s in kept] == [b"pools of a", b"pools of c", b"pools of c"]
    assert [len(s.prompts) for s in kept] == [2, 1, 1]


def test_a_writer_that_died_before_the_list_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_segments(tmp_path, FACTS, [segment("a")])

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(trace_segments, "append_prompts", dies)
        with pytest.raises(KeyboardInterrupt):
            keep_segments(tmp_path, FACTS, [segment("b")])
    folder = tmp_path / FACTS.folder_name
    assert (folder / "0002.pools").exists()
    assert [s.pools for s in read_segments(folder)] == [b"pools of a"]
    keep_segments(tmp_path, FACTS, [segment("c")])
    assert [(p.prompt_id, p.segment) for p in read_prompts(folder)] == [("a", "0001.pools"), ("c", "0002.pools")]
    assert (folder / "0002.pools").read_bytes() == b"pools of c"


def test_another_trace_in_the_folder(tmp_path: Path) -> None:
    keep_segments(tmp_path, FACTS, [segment("a")])
    other = TraceFacts(**{**vars(FACTS), "ties": "lowest_index"})
    with pytest.raises(InputError, match="ties was libstdcxx and is now lowest_index"):
        keep_segments(tmp_path, other, [segment("b")])


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    (tmp_path / FACTS.folder_name).write_text("a file in the way")
    with pytest.raises(EnvironmentProblem, match="the trace cannot be written"):
        keep_segments(tmp_path, FACTS, [segment("a")])
