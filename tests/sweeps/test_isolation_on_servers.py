"""Isolations on real servers: planted situations are named, each with its evidence, through Ray and the whole command.

The demo pair was trained on taps 0, 3, 7; its default is 2, 4, 5. A test plugin plants faults of tensor parallelism.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from doubles.tp_fault import fault_environment

from benchmarks.result_file import write_result
from sweeps.cli import main

ROOT = Path(__file__).parents[2]
SPECS = ROOT / "sweeps" / "specs"
RESULTS = ROOT / "benchmarks" / "results" / "isolate.json"
COMMAND = "python -m pytest -m evidence tests/sweeps/test_isolation_on_servers.py"

SPEC = """\
study: {study}
target: {specs}/demo_pair/target
draft: {specs}/demo_pair/draft
engine:
  device: cpu
  start_method: fork
  ready_timeout_s: 240
  args: {{context_length: 512, max_total_tokens: 8192, max_running_requests: 8}}
  env: {env}
cluster: {{gpus: 2, max_parallel: 1, address: {address}}}
tracking: {{enabled: false}}
space: {{layout: [[0, 3, 7]], num_steps: [5], eagle_topk: [1], num_draft_tokens: [6], tp_size: [1, 2]}}
workload:
  prompts: {prompts}
  max_new_tokens: {tokens}
  concurrency: [8]
  ignore_eos: true
"""


def setting(layout: str, triple: tuple[int, int, int], tp_size: int) -> str:
    steps, topk, tokens = triple
    return (
        f"{{layout: {layout}, num_steps: {steps}, eagle_topk: {topk}, num_draft_tokens: {tokens}, tp_size: {tp_size}}}"
    )


TRAINED, DEFAULT = "[0, 3, 7]", "default"
LONG, SHORT = (5, 1, 6), (1, 1, 8)
GOOD = setting(TRAINED, LONG, 2)


class Study:
    """A study that has measured nothing yet, in a home of its own."""

    def __init__(
        self,
        home: Path,
        name: str,
        *,
        fault: str = "none",
        prompts: slice = slice(0, 20),
        tokens: int = 96,
        address: str = "null",
    ) -> None:
        from sweeps.claiming import save_spec
        from sweeps.home import StudyPlace
        from sweeps.spec import load_spec

        home.mkdir(exist_ok=True)
        env = json.dumps(fault_environment(home / f"{name}-fault", fault))  # type: ignore[arg-type]
        path = home / f"{name}.yaml"
        lines = (SPECS / "demo_prompts.jsonl").read_text().splitlines(keepends=True)
        chosen = home / f"{name}.jsonl"
        chosen.write_text("".join(lines[prompts]))
        content = SPEC.format(study=name, specs=SPECS, env=env, prompts=chosen, tokens=tokens, address=address)
        path.write_text(content)
        self.name = name
        self.place = StudyPlace(home=home, folder=home / name)
        save_spec(self.place, load_spec(path))

    def isolate(
        self, capsys: pytest.CaptureFixture[str], suspect: str, *more: str, reference: str = GOOD
    ) -> dict[str, Any]:
        argv = ["isolate", str(self.place.folder), "--suspect", suspect, "--reference", reference, "--json"]
        capsys.readouterr()
        assert main([*argv, "--trained-on", "0,3,7", *more]) == 0
        content: dict[str, Any] = json.loads(capsys.readouterr().out)
        return content


def causes_in(content: dict[str, Any]) -> set[str]:
    return {row["cause"] for row in content["verdicts"] if row["verdict"] == "yes"}


def check(content: dict[str, Any], causes: set[str]) -> None:
    """The causes and no other one, shares that sum to the gap, every corner measured."""
    assert {row["cause"]: row["verdict"] for row in content["verdicts"]} == {
        cause: "yes" if cause in causes else "no" for cause in ("config", "layout", "parallelism")
    }, content["verdicts"]
    assert sum(row["share"] for row in content["verdicts"]) == pytest.approx(content["gap"]["value"], abs=1e-4)
    assert content["gap"]["missing_corners"] == []
    changes = {pair["changes"] for pair in content["gap"]["parallelism"]}
    assert ("yes" in changes) == ("parallelism" in causes)
    assert changes <= {"yes", "undecided"} if "parallelism" in causes else changes == {"no"}


@pytest.mark.server
@pytest.mark.timeout(400)
def test_a_fault_of_parallelism_is_named_with_its_kind(
    tmp_path: Path, ray_address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    study = Study(home, "sliced", fault="sliced", prompts=slice(0, 12), tokens=48, address=ray_address)
    content = study.isolate(capsys, setting(TRAINED, LONG, 2))
    check(content, {"parallelism"})
    assert [row["fault"] for row in content["probes"]] == [None, "sliced"]
    assert content["probes"][0]["fed"] == [0, 3, 7]
    assert len(study.place.records.trial_ids()) == 2
    # all is kept: the same question again starts no server, and the report shows the answer
    assert study.isolate(capsys, setting(TRAINED, LONG, 2))["verdicts"] == content["verdicts"]
    assert main(["report", str(study.place.folder), "--format", "md", "--no-plots"]) == 0
    assert "slice of a hidden state" in capsys.readouterr().out


@pytest.mark.evidence
@pytest.mark.server
@pytest.mark.timeout(3600)
def test_every_planted_situation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    clean = Study(home, "clean")
    found = {
        "d: config and layout": clean.isolate(capsys, setting(DEFAULT, SHORT, 2)),
        "a: config": clean.isolate(capsys, setting(TRAINED, SHORT, 2)),
        "b: layout": clean.isolate(capsys, setting(DEFAULT, LONG, 2)),
        "f: nothing wrong": clean.isolate(capsys, setting(TRAINED, LONG, 2)),
    }
    # the corners of d hold those of the others: 2 layouts x 2 triples x 2 TP sizes
    assert len(clean.place.records.trial_ids()) == 8
    partial = Study(home, "partial", fault="partial")
    found["e: layout and TP, partial sums"] = partial.isolate(capsys, setting(DEFAULT, LONG, 2))
    found["c: TP, partial sums"] = partial.isolate(capsys, setting(TRAINED, LONG, 2))
    assert len(partial.place.records.trial_ids()) == 4
    sliced = Study(home, "sliced", fault="sliced")
    found["c: TP, slices"] = sliced.isolate(capsys, setting(TRAINED, LONG, 2))
    wanted = {
        "a: config": {"config"},
        "b: layout": {"layout"},
        "c: TP, partial sums": {"parallelism"},
        "c: TP, slices": {"parallelism"},
        "d: config and layout": {"config", "layout"},
        "e: layout and TP, partial sums": {"layout", "parallelism"},
        "f: nothing wrong": set(),
    }
    truth = true_shares(Study(home, "truth", prompts=slice(20, 40)), capsys)
    rows = {
        name: {
            "planted": sorted(wanted[name]),
            "planted_effect": truth.get(name),
            "found": sorted(causes_in(content)),
            "gap": content["gap"]["value"],
            "sentences": content["sentences"],
            "verdicts": content["verdicts"],
            "parallelism": content["gap"]["parallelism"],
            "interactions": content["gap"]["interactions"],
            "probes": [{key: row[key] for key in ("layout", "tp_size", "fed", "fault")} for row in content["probes"]],
        }
        for name, content in sorted(found.items())
    }
    prompts = found["b: layout"]["gap"]["prompts"]
    write_result(RESULTS, command=COMMAND, content={"prompts": prompts, "situations": rows})
    for name, causes in wanted.items():
        check(found[name], causes)
    assert found["c: TP, partial sums"]["probes"][-1]["fault"] == "partial"
    assert found["c: TP, slices"]["probes"][-1]["fault"] == "sliced"
    assert found["b: layout"]["probes"][-1]["fed"] == [2, 4, 5]
    for name, effects in truth.items():
        for row in found[name]["verdicts"]:
            if row["cause"] in effects:
                low, high = effects[row["cause"]]
                assert row["interval"][0] <= high, (name, row, effects)
                assert low <= row["interval"][1], (name, row, effects)


def true_shares(study: Study, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, list[float]]]:
    """What the planted causes cost on twenty other prompts at tp 1, as intervals, by situation and cause."""
    good = setting(TRAINED, LONG, 1)
    suspects = {
        "d: config and layout": setting(DEFAULT, SHORT, 1),
        "a: config": setting(TRAINED, SHORT, 1),
        "b: layout": setting(DEFAULT, LONG, 1),
    }
    found = {name: study.isolate(capsys, it, "--no-probe", reference=good) for name, it in suspects.items()}
    assert len(study.place.records.trial_ids()) == 4
    return {
        name: {row["cause"]: row["interval"] for row in content["verdicts"] if row["interval"] is not None}
        for name, content in found.items()
    }
