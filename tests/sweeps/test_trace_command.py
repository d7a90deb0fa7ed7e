"""`specsweep trace`: what it would do, what it refuses, and how it ends, without a server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from spec_files import MINIMAL, write_spec
from trial_builders import WORKLOAD

from results.failures import Failure
from sweeps import tracing_study
from sweeps.claiming import claim_study, save_spec
from sweeps.cli import main
from sweeps.home import StudyPlace
from sweeps.spec import load_spec
from sweeps.tracing import FinishedTrace, TraceRun, nothing_to_trace
from sweeps.tracing_study import StudyTraces

SPEC = MINIMAL.replace("eagle_topk: [1]", "eagle_topk: [1, 4]") + "workload: {concurrency: [1]}\n"


def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str = SPEC) -> StudyPlace:
    monkeypatch.setenv("SPECSWEEP_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tracing_study, "make_workload", lambda spec: WORKLOAD)
    spec = load_spec(write_spec(tmp_path, text))
    place = claim_study(spec, tmp_path / "home")
    save_spec(place, spec)
    return place


def test_dry_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    study(tmp_path, monkeypatch)
    assert main(["trace", "case", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 traces, 4 prompts to trace, one server",
        "  layout 2,16,29, tp 1, topk 1, 3 steps: 2 prompts to trace, 0 done",
        "  layout 2,16,29, tp 1, topk 4, 3 steps: 2 prompts to trace, 0 done",
    ]
    arguments = ["--topk", "8", "--steps", "2", "--layout", "0,3,7", "--layout", "default", "--prompts", "1"]
    assert main(["trace", "case", "--dry-run", "--json", *arguments]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["schema"], content["study"]) == (1, "case")
    alike = {"tp_size": 1, "eagle_topk": 8, "num_steps": 2, "flags": {}, "prompts_left": 1, "prompts_done": 0}
    alike["prompts_untraceable"] = 0
    assert content["traces"] == [{"layout": "0,3,7", **alike}, {"layout": "2,16,29", **alike}]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((SPEC, "--tp", "2"), "--tp: 2 is not in the space (legal: 1)"),
        ((SPEC, "--layout", "x"), "layout: 'x' is neither default, shipped nor taps"),
        ((SPEC.replace("{concurrency", "{temperature: 0.5, concurrency"),), "temperature: a trace needs 0, not 0.5"),
    ],
)
def test_what_cannot_be_traced_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: tuple[str, ...],
    message: str,
) -> None:
    study(tmp_path, monkeypatch, asked[0])
    assert main(["trace", "case", *asked[1:]]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_how_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    study(tmp_path, monkeypatch)
    failure = Failure(phase="measure", kind="crash", message="it died", log_tail="line 1\nline 2")

    def ends(**changes: Any) -> Any:
        def run(spec: object, place: object, found: StudyTraces, say: Any) -> TraceRun:
            say("traced     something")
            first, second = nothing_to_trace(found.plans).traces
            done = (replace(first, prompts=2), replace(second, failure=changes.pop("failure", None)))
            return replace(TraceRun(traces=done, weight_loads=1, elapsed_s=3.2, stopped=False), **changes)

        return run

    monkeypatch.setattr(tracing_study, "trace_study", ends())
    assert main(["trace", "case"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("traced     something\n  layout 2,16,29, tp 1, topk 1, 3 steps: 2 prompts\n")
    assert out.endswith("1 weight load, 3 s\nWhat follows for every setting: specsweep surface case\n")
    monkeypatch.setattr(tracing_study, "trace_study", ends(failure=failure))
    assert main(["trace", "case", "--json"]) == 1
    shown = capsys.readouterr()
    content = json.loads(shown.out)
    assert content["traces"][1]["failure"]["log_tail"] == "line 1\nline 2"
    assert (content["weight_loads"], content["stopped"]) == (1, False)
    assert "traced     something" in shown.err
    monkeypatch.setattr(tracing_study, "trace_study", ends(stopped=True, traces=(FinishedTrace,)[:0]))
    assert main(["trace", "case"]) == 130
    assert "Stopped; nothing is lost: specsweep trace case" in capsys.readouterr().out


def test_what_is_traced_already_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study(tmp_path, monkeypatch)
    monkeypatch.setattr(tracing_study, "plan_traces", lambda *_: ())
    assert main(["trace", "case"]) == 0
    assert capsys.readouterr().out == "0 weight loads, 0 s\n"
