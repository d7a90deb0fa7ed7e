"""The command line in process: exit codes, one line per error, nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from spec_files import MINIMAL, write_spec

from sweeps.cli import main
from sweeps.commands.version import SHOWN

ROOT = Path(__file__).parents[2]
Capture = pytest.CaptureFixture[str]


def refused(capsys: Capture, argv: list[str], code: int) -> str:
    """Runs a command that must end with `code`, one line on stderr and nothing on stdout."""
    assert main(argv) == code
    out, err = capsys.readouterr()
    assert err.startswith("specsweep: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert out == ""
    return err


def test_without_a_command_the_help_is_printed(capsys: Capture) -> None:
    assert main([]) == 0
    assert "Exit codes: 0 done" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["plam"], "No such command 'plam'"),
        (["plan"], "Missing argument 'SPEC'"),
        (["plan", "x.yaml", "--jsn"], "No such option"),
        (["plan", "x.yaml", "--seconds-per-launch", "soon"], "--seconds-per-launch"),
        (["plan", "nowhere.yaml"], "nowhere.yaml: cannot be read: No such file or directory"),
    ],
)
def test_wrong_usage_is_bad_input(capsys: Capture, argv: list[str], message: str) -> None:
    assert message in refused(capsys, argv, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("target: [", "not valid YAML"),
        (MINIMAL + "spase: 1\n", "unknown key; did you mean space?"),
        (MINIMAL.replace("[1, 3]", "three"), "space.num_steps: 'three' is not a list"),
        (MINIMAL.replace("[1, 3]", "[true]"), "space.num_steps[0]: true is not a whole number"),
        (MINIMAL + "engine: {ready_timeout_s: .nan}\n", "nan is not a finite number"),
        (MINIMAL.replace("[1, 3]", "[]"), "space.num_steps: the list is empty"),
        ("target: models/target\ndraft: models/draft\nspace: {}\n", "the space is empty"),
        (MINIMAL.replace("models/draft", "models/none"), "give an absolute path"),
        (MINIMAL.replace("models/draft", "."), "config.json"),
        (
            MINIMAL + "suspect: {num_steps: 1, eagle_topk: 4, num_draft_tokens: 8}\n",
            "suspect: cannot run: need n-1=7 > pool 4",
        ),
    ],
)
def test_bad_input_is_one_line_and_code_2(tmp_path: Path, capsys: Capture, text: str, message: str) -> None:
    path = write_spec(tmp_path, text)
    before = sorted(tmp_path.rglob("*"))
    error = refused(capsys, ["plan", str(path)], 2)
    assert message in error
    assert str(path) in error
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("target", "~nobody-of-that-name/llama", "target: ~nobody-of-that-name/llama: no home folder is known for"),
        ("engine.python", "~nobody-of-that-name/python", "engine.python: ~nobody-of-that-name/python: no home"),
        ("workload.prompts", "~nobody-of-that-name/p.jsonl", "workload.prompts: ~nobody-of-that-name/p.jsonl: no home"),
        ("target", "x" * 300, "target: 'xxx"),
        ("draft", "./" + "x" * 300, "draft: '"),
        ("workload.prompts", "x" * 300, "workload.prompts: '"),
        ("workload.prompts", "hf:~nobody-of-that-name/d", "no home folder is known for ~nobody-of-that-name"),
    ],
)
def test_a_path_that_cannot_be_is_one_line(tmp_path: Path, capsys: Capture, key: str, value: str, message: str) -> None:
    error = refused(capsys, ["run", str(write_spec(tmp_path)), "--dry-run", "--set", f"{key}={value}"], 2)
    assert message in error
    assert f"--set {key}=" in error


def test_a_place_that_cannot_be_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    nobody, long = "~nobody-of-that-name/x", "x" * 300
    for place in (nobody, long):
        refused(capsys, ["check", "--target", place, "--draft", place], 2)
        refused(capsys, ["status", place], 2)
    monkeypatch.setenv("SPECSWEEP_HOME", nobody)
    assert "no home folder is known for" in refused(capsys, ["status", "case"], 2)


def test_plan_shows_the_check_and_the_traces_of_a_surface_study(tmp_path: Path, capsys: Capture) -> None:
    sets = ["--set", "engine.device=cpu", "--set", "search.sampler=surface", "--set", "workload.prompts=12"]
    argv = ["plan", str(write_spec(tmp_path)), *sets]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "check                    1  one setting is also launched afresh" in out
    assert "traces                   1  one per layout and topk, 12 prompts each, before the search" in out
    # two settings on the traced server; the baseline, the check and the winner have their own
    loads = "weights loaded           4  1 for baselines + 1 for the check + 1 to trace + 1 to confirm the winner"
    assert f"{loads}; 2 trials on a running server" in out
    assert main([*argv, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["launches"] == 3
    assert plan["study_launches"]["all"] == 4
    assert plan["traces"] == [
        {"layout": "2,16,29", "tp_size": 1, "eagle_topk": 1, "num_steps": 3, "flags": {}, "prompts": 12}
    ]


def test_plan_shows_what_the_budget_leaves_and_which_limit_cuts_what(tmp_path: Path, capsys: Capture) -> None:
    sets = ["space.tp_size=[1, 2]", "engine.device=cuda", "budget.trials=3", "budget.launches=5"]
    argv = ["plan", str(write_spec(tmp_path)), *(word for one in sets for word in ("--set", one))]
    assert main([*argv, "--set", "budget.wall_time_s=600"]) == 0
    out = capsys.readouterr().out
    assert "launches                 5  of 6: 4 servers + 2 baselines\n" in out
    cuts = "3 of 4 settings: budget.trials; 5 of 6 server starts: budget.launches; 10 min of about 15 min"
    cuts += ": budget.wall_time_s, which the numbers above do not allow for"
    assert f"  budget            {cuts}\n  time              about 10 min at" in out
    assert main([*argv, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["launches"], plan["study_launches"]["all"]) == (6, 7)
    assert plan["within_budget"] == {
        "launches": 5, "baselines": 2, "settings": 3, "check": 0, "traces": 0, "confirmations": 0, "all": 5,
        "switched": 0, "seconds": 900.0,
        "cuts": [{"limit": "trials", "within": 3, "of": 4}, {"limit": "launches", "within": 5, "of": 6}],
    }  # fmt: skip


def test_plan_says_what_is_illegal_what_collapses_and_what_is_launched(tmp_path: Path, capsys: Capture) -> None:
    text = """\
target: models/target
draft: models/draft
space:
  layout: [default, [0, 3, 7], [7, 3, 0]]
  num_steps: [1, 2, 3]
  eagle_topk: [1, 4]
  num_draft_tokens: [2, 4, 8]
  tp_size: [1, 2]
budget: {repeats: 2}
"""
    path = write_spec(tmp_path, text)
    assert main(["plan", str(path), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["schema"] == 1
    assert plan["requested"] == 3 * 3 * 2 * 3 * 2
    # topk 1: three servers whatever n; topk 4: (1,4,2), (1,4,4), (2,4,4), (2,4,8), (3,4,4), (3,4,8)
    assert plan["effective"] == 9 * 2 * 2
    assert plan["launches"] == 9 * 2 * 2 * 2 + 2 * 3
    assert plan["study_launches"]["baselines"] == 2 * 3
    assert plan["study_launches"]["settings"] + plan["study_launches"]["switched"] == 9 * 2 * 2 * 2
    assert plan["traces"] == []
    rules = {row["rule"] for row in plan["illegal"]}
    assert rules == {"layout_not_expressible", "tree_pool", "tokens_below_steps"}
    pool = next(row for row in plan["illegal"] if row["rule"] == "tree_pool")
    assert (pool["num_steps"], pool["eagle_topk"], pool["num_draft_tokens"]) == (1, 4, 8)
    assert "7 > pool 4" in pool["message"]
    asked = next(row for row in plan["adjusted"] if row["requested"]["num_draft_tokens"] == 8)
    assert asked["requested"] == {"num_steps": 1, "eagle_topk": 1, "num_draft_tokens": 8}
    assert asked["effective"] == {"num_steps": 1, "eagle_topk": 1, "num_draft_tokens": 2}
    assert asked["rule"] == "topk1_tokens"
    layouts = {row["name"]: row for row in plan["layouts"]}
    assert layouts["default"]["taps"] == [2, 16, 29]
    assert layouts["default"]["ids"] is None
    assert layouts["0,3,7"]["ids"] == [-1, 2, 6]
    assert layouts["7,3,0"]["expressible"] is False
    assert layouts["7,3,0"]["reason"]

    assert main(["plan", str(path)]) == 0
    table = capsys.readouterr().out
    for part in (
        "settings asked         108",
        "distinct servers        36",
        "launches                78  36 servers x 2 repeats + 2 baselines x 3\n",
        "tree_pool",
        "(1,1,8)  (1,1,2)",
    ):
        assert part in table


def test_a_suspect_outside_the_space_is_launched_too(tmp_path: Path, capsys: Capture) -> None:
    path = str(
        write_spec(tmp_path, MINIMAL + "suspect: {num_steps: 1, eagle_topk: 1, num_draft_tokens: 8, tp_size: 2}\n")
    )
    assert main(["plan", path, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["launches"] == 2 + 1 + 1 + 1
    assert plan["suspect"]["in_space"] is False
    assert plan["suspect"]["num_draft_tokens"] == 2
    assert main(["plan", path, "--json", "--set", "suspect.tp_size=1"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["launches"] == 2 + 1
    assert plan["suspect"]["in_space"] is True


def test_nothing_legal_is_bad_input_but_the_reasons_are_printed(tmp_path: Path, capsys: Capture) -> None:
    text = (
        "target: models/target\ndraft: models/draft\nspace: {num_steps: [1], eagle_topk: [8], num_draft_tokens: [10]}\n"
    )
    path = write_spec(tmp_path, text)
    assert main(["plan", str(path), "--json"]) == 2
    out, err = capsys.readouterr()
    plan = json.loads(out)
    assert (plan["requested"], plan["legal"], plan["effective"], plan["launches"]) == (1, 0, 0, 0)
    assert plan["illegal"][0]["rule"] == "tree_pool"
    assert err.startswith(f"specsweep: {path}: space: none of the 1 settings is legal")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 32}, "hidden size is 32, the target's 64"),
        ({"draft_vocab_size": 512}, "output layer has 256 rows, draft_vocab_size is 512"),
        ({"architectures": ["LlamaForCausalLM"]}, "SGLang has no EAGLE-3 draft class of that name"),
    ],
)
def test_a_draft_that_does_not_fit_is_refused(
    tmp_path: Path, capsys: Capture, change: dict[str, object], message: str
) -> None:
    path = write_spec(tmp_path)
    config = tmp_path / "models" / "draft" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    error = refused(capsys, ["plan", str(path)], 2)
    assert "draft: does not fit the target: " in error
    assert message in error


def test_a_draft_for_another_number_of_taps_has_no_legal_setting(tmp_path: Path, capsys: Capture) -> None:
    path = write_spec(tmp_path)
    assert main(["plan", str(path), "--set", "space.layout=[[0, 3]]"]) == 2
    out, err = capsys.readouterr()
    assert "layout_fc_width" in out
    assert "none of the 2 settings is legal (layout_fc_width 2)" in err


def test_silent_trouble_with_the_pair_is_shown(tmp_path: Path, capsys: Capture) -> None:
    path = write_spec(tmp_path)
    config = tmp_path / "models" / "draft" / "config.json"
    ids = {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}
    config.write_text(json.dumps(json.loads(config.read_text()) | ids))
    assert main(["plan", str(path)]) == 0
    assert "Errors in the pair" in capsys.readouterr().out
    assert main(["plan", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["severity"] == "error"


def test_version_and_schema(capsys: Capture) -> None:
    assert main(["version", "--json"]) == 0
    assert set(SHOWN) <= json.loads(capsys.readouterr().out).keys()
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["space"]


def test_the_module_runs_as_a_program_and_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    path = write_spec(tmp_path, MINIMAL.replace("[1, 3]", "{low: 1, high: 300}").replace("[1]", "[1, 2]"))
    program = [sys.executable, "-m", "sweeps", "plan", str(path), "--json"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        error = process.stderr.read()
    assert error == b""
    done = subprocess.run(
        [sys.executable, "-m", "sweeps", "plan"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "specsweep: Missing argument 'SPEC'.\n"


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sweeps.planning.make_plan", interrupt)
    assert main(["plan", str(write_spec(tmp_path))]) == 130
