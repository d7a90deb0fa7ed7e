"""Files of a trace on their way to the driver: taken where they lie, or fetched in bounded pieces."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from actors import trace_transfer
from actors.trace_transfer import TraceFolder, fetch, is_here, signed
from results.trace_segments import INDEX_SUFFIX, TracedFiles, TracedSegment
from results.traces import TraceFacts

ROOT = Path(__file__).parents[2]
FACTS = TraceFacts(layout=(2, 4, 5), tp_size=1, eagle_topk=2, num_steps=3, workload_id="w", ties="libstdcxx")
POOLS = bytes(range(256)) * 4


def made(folder: TraceFolder) -> TracedFiles:
    """What a group has in its folder."""
    trace = folder.renew() / "trace"
    trace.mkdir()
    (trace / "0001.pools").write_bytes(POOLS)
    (trace / f"0001.pools{INDEX_SUFFIX}").write_bytes(b"index")
    segment = TracedSegment(name="0001.pools", pools_bytes=len(POOLS), index_bytes=5, prompts=())
    return signed(TracedFiles(facts=FACTS, folder=trace, segments=(segment,)))


@pytest.fixture
def group() -> Iterator[TraceFolder]:
    made = TraceFolder()
    yield made
    made.clear()


def test_the_mark_tells_whether_the_folder_is_this_one(group: TraceFolder) -> None:
    traced = made(group)
    assert is_here(traced)
    # the same path on another machine, with another trace of another group or none
    assert not is_here(replace(traced, mark="0" * 32))
    assert not is_here(replace(traced, mark=""))
    group.clear()
    assert not is_here(traced)


def test_files_are_fetched_in_bounded_pieces(
    group: TraceFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_transfer, "PIECE_BYTES", 300)
    asked: list[tuple[str, int, int]] = []

    def read(name: str, offset: int, size: int) -> bytes:
        asked.append((name, offset, size))
        return group.read_piece(name, offset, size)

    there = made(group)
    here = fetch(there, read, tmp_path)
    assert (tmp_path / "0001.pools").read_bytes() == POOLS
    assert (tmp_path / f"0001.pools{INDEX_SUFFIX}").read_bytes() == b"index"
    assert here == replace(there, folder=tmp_path, mark="")
    # the index first: pools without it say nothing
    assert asked[0] == (f"trace/0001.pools{INDEX_SUFFIX}", 0, 5)
    assert asked[1:] == [("trace/0001.pools", offset, min(300, 1024 - offset)) for offset in (0, 300, 600, 900)]


def test_what_cannot_be_fetched_is_said(group: TraceFolder, tmp_path: Path) -> None:
    there = made(group)
    (there.folder / "0001.pools").write_bytes(b"short")
    with pytest.raises(EOFError, match=r"trace/0001\.pools: 1019 bytes are missing"):
        fetch(there, group.read_piece, tmp_path)
    for name in ("../secret", "/etc/hostname", "trace/../../secret"):
        with pytest.raises(ValueError, match="is not in the folder of the trace"):
            group.read_piece(name, 0, 9)
    group.clear()
    with pytest.raises(FileNotFoundError, match="the trace is gone"):
        group.read_piece("trace/0001.pools", 0, 9)


def test_the_next_trace_takes_the_place_of_the_last(group: TraceFolder) -> None:
    first = made(group)
    second = made(group)
    assert not first.folder.exists()
    assert is_here(second)
    group.clear()
    group.clear()
    assert not second.folder.parent.exists()


def test_a_place_of_ones_own_is_emptied_after_a_killed_one(tmp_path: Path) -> None:
    place = tmp_path / "slot" / "trace"
    killed = made(TraceFolder(place))
    assert killed.folder.parent == place
    successor = TraceFolder(place)
    assert list(successor.renew().iterdir()) == []
    assert not is_here(killed)
    successor.clear()
    assert not place.exists()


LARGE = """
import json, resource, sys
from pathlib import Path
from actors.trace_transfer import TraceFolder, fetch, is_here, signed
from results.trace_segments import TracedFiles, TracedSegment, keep_segments
from results.traces import TracedPrompt, TraceFacts

SIZE = 300 * 2**20
work, group = Path(sys.argv[1]), TraceFolder()
folder = group.renew() / "trace"
folder.mkdir()
with (folder / "0001.pools").open("wb") as sparse:
    sparse.truncate(SIZE)
(folder / "0001.pools.requests").write_bytes(b"index")
facts = TraceFacts(layout=(2, 4, 5), tp_size=1, eagle_topk=2, num_steps=3, workload_id="w", ties="libstdcxx")
prompt = TracedPrompt(
    prompt_id="a", request_id="a-1", segment="0001.pools", prompt_tokens=3, length=2, output_ids=(4, 5)
)
segment = TracedSegment(name="0001.pools", pools_bytes=SIZE, index_bytes=5, prompts=(prompt,))
traced = signed(TracedFiles(facts=facts, folder=folder, segments=(segment,)))

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

before = peak()
assert is_here(traced)
kept = keep_segments(work / "local", traced)
local = peak() - before
(work / "incoming").mkdir()
fetched = fetch(traced, group.read_piece, work / "incoming")
group.clear()
again = keep_segments(work / "remote", fetched)
print(json.dumps({
    "local": local,
    "remote": peak() - before,
    "sizes": [(one / "0001.pools").stat().st_size for one in (kept, again)],
}))
"""


def test_a_large_trace_is_never_in_memory(tmp_path: Path) -> None:
    """300 MiB through both ways, in a process whose peak is known; a piece has 16 MiB."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    found = json.loads(done.stdout)
    assert found["sizes"] == [300 * 2**20] * 2
    assert found["local"] < 64 * 2**20
    assert found["remote"] < 96 * 2**20
