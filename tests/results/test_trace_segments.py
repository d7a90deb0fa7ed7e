"""Keeping segments: the order of writes, what a dead writer leaves, prompts that are there already."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from results import trace_segments
from results.trace_segments import INDEX_SUFFIX, TracedFiles, TracedSegment, find_segments, keep_segments
from results.traces import TracedPrompt, TraceFacts, read_prompts
from search_spaces.errors import EnvironmentProblem, InputError

FACTS = TraceFacts(layout=(2, 4, 5), tp_size=1, eagle_topk=2, num_steps=3, workload_id="w", ties="libstdcxx")


def traced(folder: Path, *segments: tuple[str, ...], facts: TraceFacts = FACTS) -> TracedFiles:
    """What a group has made in `folder`: a segment for each group of prompts."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for number, names in enumerate(segments, start=7):
        file = folder / f"{number:04d}.pools"
        file.write_bytes(b"pools of " + names[0].encode())
        file.with_name(file.name + INDEX_SUFFIX).write_bytes(b"index")
        prompts = tuple(
            TracedPrompt(
                prompt_id=name, request_id=f"{name}-1", segment=file.name, prompt_tokens=3, length=2, output_ids=(4, 5)
            )
            for name in names
        )
        made.append(TracedSegment(name=file.name, pools_bytes=10, index_bytes=5, prompts=prompts))
    return TracedFiles(facts=facts, folder=folder, segments=tuple(made))


def pools_in(folder: Path) -> list[bytes]:
    return [(folder / one.name).read_bytes() for one in find_segments(folder)]


def test_segments_are_numbered_in_the_study(tmp_path: Path) -> None:
    folder = keep_segments(tmp_path, traced(tmp_path / "made", ("a", "b"), ("c",)))
    keep_segments(tmp_path, traced(tmp_path / "made", ("b", "c"), ("c", "d")))
    assert [(p.prompt_id, p.segment) for p in read_prompts(folder)] == [
        ("a", "0001.pools"),
        ("b", "0001.pools"),
        ("c", "0002.pools"),
        ("d", "0003.pools"),
    ]
    assert (folder / "0003.pools").read_bytes() == b"pools of c"
    kept = find_segments(folder)
    assert pools_in(folder) == [b"pools of a", b"pools of c", b"pools of c"]
    assert [(s.pools_bytes, s.index_bytes) for s in kept] == [(10, 5)] * 3
    assert [len(s.prompts) for s in kept] == [2, 1, 1]


def test_a_writer_that_died_before_the_list_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_segments(tmp_path, traced(tmp_path / "made", ("a",)))

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(trace_segments, "append_prompts", dies)
        with pytest.raises(KeyboardInterrupt):
            keep_segments(tmp_path, traced(tmp_path / "made", ("b",)))
    folder = tmp_path / FACTS.folder_name
    assert (folder / "0002.pools").exists()
    assert pools_in(folder) == [b"pools of a"]
    keep_segments(tmp_path, traced(tmp_path / "made", ("c",)))
    assert [(p.prompt_id, p.segment) for p in read_prompts(folder)] == [("a", "0001.pools"), ("c", "0002.pools")]
    assert (folder / "0002.pools").read_bytes() == b"pools of c"


def test_a_writer_that_died_while_it_copied_does_not_stop_the_next_of_its_process_id(tmp_path: Path) -> None:
    folder = keep_segments(tmp_path, traced(tmp_path / "made", ("a",)))
    (folder / f".tmp-0002.pools-{os.getpid()}").write_bytes(b"half")
    keep_segments(tmp_path, traced(tmp_path / "made", ("b",)))
    assert pools_in(folder) == [b"pools of a", b"pools of b"]


def test_another_trace_in_the_folder(tmp_path: Path) -> None:
    keep_segments(tmp_path, traced(tmp_path / "made", ("a",)))
    other = TraceFacts(**{**vars(FACTS), "ties": "lowest_index"})
    with pytest.raises(InputError, match="ties was libstdcxx and is now lowest_index"):
        keep_segments(tmp_path, traced(tmp_path / "made", ("b",), facts=other))


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    (tmp_path / FACTS.folder_name).write_text("a file in the way")
    with pytest.raises(EnvironmentProblem, match="the trace cannot be written"):
        keep_segments(tmp_path, traced(tmp_path / "made", ("a",)))


def test_what_the_server_writes_later_is_not_part_of_it(tmp_path: Path) -> None:
    """It still has the last segment open."""
    made = traced(tmp_path / "made", ("a",))
    with (made.folder / "0007.pools").open("ab") as open_still:
        open_still.write(b" and more")
    folder = keep_segments(tmp_path, made)
    assert pools_in(folder) == [b"pools of a"]
    assert (made.folder / "0007.pools").read_bytes() == b"pools of a and more"


def test_a_file_that_became_shorter_is_not_kept(tmp_path: Path) -> None:
    made = traced(tmp_path / "made", ("a",))
    (made.folder / "0007.pools").write_bytes(b"pools")
    with pytest.raises(EnvironmentProblem, match="5 bytes are missing"):
        keep_segments(tmp_path, made)
    assert read_prompts(tmp_path / FACTS.folder_name) == ()
