"""`specsweep surface` on a study with a trace and a measured chain."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.tracing_server import VOCABULARY, TracingServer
from spec_files import write_spec

from actors.load.workload import Workload, prompt_of
from actors.tracing import TraceOutcome, TraceRequest, trace_workload, tracing_config
from results import store
from search_spaces.config import EngineConfig, Triple
from sweeps.claiming import claim_study, save_spec
from sweeps.cli import main
from sweeps.spec import load_spec

ROW_KEYS = {"layout", "tp_size", "eagle_topk", "num_steps", "num_draft_tokens", "accept_length", "rounds", "low"}


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study without records, traced at topk 2 and topk 1 with 3 steps."""
    monkeypatch.setenv("SPECSWEEP_HOME", str(tmp_path / "home"))
    spec = load_spec(write_spec(tmp_path))
    place = claim_study(spec, tmp_path / "home")
    save_spec(place, spec)
    with TracingServer() as server:
        for topk in (2, 1):
            trace(server, place.folder / "traces", topk=topk, steps=3, prompts=5)
    return place.folder


def trace(server: TracingServer, traces: Path, *, topk: int, steps: int, prompts: int) -> None:
    load = Workload(
        prompts=tuple(prompt_of(f"prompt {i}") for i in range(5)),
        warmup=(),
        concurrency=(1,),
        max_new_tokens=20,
        temperature=0,
        ignore_eos=True,
        stream=False,
        request_timeout_s=10,
        max_attempts=1,
    )
    config = EngineConfig(layout=(2, 16, 29), triple=Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2), tp_size=1)
    request = TraceRequest(
        config=tracing_config(config, num_steps=steps, eagle_topk=topk),
        workload=replace(load, prompts=load.prompts[:prompts]),
        concurrency=2,
        ties="lowest_index",
        vocabulary=VOCABULARY,
    )
    assert isinstance(trace_workload(server, request, traces), TraceOutcome)


def test_json_rows_and_files(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["surface", "case", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    rows = content["rows"]
    assert content["schema"] == 1
    assert rows[0].keys() >= ROW_KEYS | {"high", "method"}
    # topk 2: s = 1: n 2, 3; s = 2: n 3 to 7; s = 3: n 4 to 11. Chains: three.
    assert len(rows) == 2 + 5 + 8 + 3
    assert {row["method"] for row in rows} == {"replay"}
    assert {row["layout"] for row in rows} == {"2,16,29"}
    assert all(1 <= row["low"] <= row["accept_length"] <= row["high"] <= row["num_steps"] + 1 + 1 for row in rows)
    assert all(abs(row["accept_length"] - 100 / row["rounds"]) < 1e-12 for row in rows)
    assert json.loads((study / "surface.json").read_text()) == content
    for topk in (1, 2):
        image = (study / f"surface-taps2-16-29-tp1-k{topk}.png").read_bytes()
        assert image.startswith(b"\x89PNG")
        assert len(image) > 5000


def test_a_setting_that_two_traces_cover_is_there_once(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The trace of more prompts counts, the deeper one for what only it covers."""
    with TracingServer() as server:
        trace(server, study / "traces", topk=1, steps=4, prompts=2)
    assert main(["surface", "case", "--json", "--no-plots"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out)["rows"] if row["eagle_topk"] == 1]
    assert [(row["num_steps"], row["prompts"]) for row in rows] == [(1, 5), (2, 5), (3, 5), (4, 2)]


def test_the_table(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["surface", "case", "--no-plots", "--draft-tokens", "4", "--draft-tokens", "7"]) == 0
    out = capsys.readouterr().out
    assert "layout 2,16,29, tp 1, topk 2: accept length, exact for the traced prompts" in out
    assert "n=4" in out
    assert "n=7" in out
    assert "n=6" not in out
    assert not (study / "surface.json").exists()
    assert not list(study.glob("*.png"))


def test_a_part_of_the_surface_leaves_what_is_kept_of_the_whole(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["surface", "case", "--json"]) == 0
    whole = capsys.readouterr().out
    kept = {path: path.read_bytes() for path in study.iterdir() if path.is_file()}
    assert len([path for path in kept if path.suffix == ".png"]) == 2
    assert main(["surface", "case", "--draft-tokens", "4"]) == 0
    assert "plots in" not in capsys.readouterr().out
    assert {path: path.read_bytes() for path in study.iterdir() if path.is_file()} == kept

    def read_only(path: Path, content: bytes) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(store, "replace_file", read_only)
    assert main(["surface", "case", "--json"]) == 0
    out, err = capsys.readouterr()
    assert out == whole
    assert "the surface was not kept: " in err
    assert err.count("\n") == 1


def test_nothing_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SPECSWEEP_HOME", str(tmp_path / "home"))
    spec = load_spec(write_spec(tmp_path))
    save_spec(claim_study(spec, tmp_path / "home"), spec)
    assert main(["surface", "case"]) == 2
    assert "has neither a trace nor a measured chain" in capsys.readouterr().err
