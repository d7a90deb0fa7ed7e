"""`specsweep measure`: one row for a server that runs already, and one line for everything that is wrong."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doubles.timed_answers import TimedPlan, script_of
from doubles.timed_server import TimedServer

from actors.engines.endpoint import Endpoint
from actors.load.prompts import builtin_prompts
from sweeps.cli import main
from sweeps.commands.measure import measured_json, show_measured
from sweeps.measuring import MeasuredServer, MeasureRequest, measure_server

ROOT = Path(__file__).parents[2]
PLAN = TimedPlan(ttft_s=0.01, step_s=0.002, acceptance=(0.8, 0.6, 0.4, 0.3, 0.2))
QUICK = ["--prompts", "24", "--concurrency", "4", "--max-new-tokens", "40"]
Capture = pytest.CaptureFixture[str]


def refused(capsys: Capture, argv: list[str], code: int) -> str:
    assert main(argv) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("specsweep: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def test_the_row_is_what_the_server_did(capsys: Capture) -> None:
    with TimedServer(PLAN) as server:
        assert main(["measure", server.url, *QUICK, "--all-prompts", "--json"]) == 0
        row = json.loads(capsys.readouterr().out)
        assert server.seen.flushes >= 1
    scripts = [script_of(PLAN, prompt.text, 40) for prompt in builtin_prompts(24, 0).prompts]
    steps = sum(len(script.accepted) for script in scripts)
    drafts = [accepted for script in scripts for accepted in script.accepted]
    assert row["schema"] == 1
    assert row["server"]["num_steps"] == 5
    assert (row["server"]["tp_size"], row["server"]["model_path"]) == (1, "models/double")
    assert row["accept_length"]["value"] == pytest.approx(24 * 40 / steps)
    assert row["accept_length"]["low"] < row["accept_length"]["value"] < row["accept_length"]["high"]
    assert row["accept_length"]["count"] == 24
    assert row["counted_accept_length"] == pytest.approx(24 * 40 / steps)
    assert row["p1"] == pytest.approx(sum(accepted > 0 for accepted in drafts) / steps)
    assert row["conditional_acceptance"][0] == row["p1"] == row["acceptance_by_position"][0]
    assert row["histogram"][0] == drafts.count(0)
    assert row["ceiling"] == 6
    assert (row["requests"], row["requests_failed"], row["verify_steps"]) == (24, 0, steps)
    assert row["output_throughput"]["value"] == pytest.approx(24 * 40 / row["duration_s"])
    assert row["ttft_ms_p50"] >= 10
    assert row["tpot_ms_p50"] > 0
    assert (row["comparable"], row["objections"], row["stopped"]) == (True, [], None)
    assert row["notes"] == ["the prompts are sent as plain text, without a chat template"]
    assert "s3cret" not in json.dumps(row)


def test_the_text_shows_the_numbers_and_what_makes_them_less(capsys: Capture) -> None:
    plan = replace(PLAN, ttft_s=0.005, step_s=0.001, flush_status=404)
    with TimedServer(plan) as server:
        assert main(["measure", server.url, *QUICK]) == 0
        assert main(["measure", server.url, *QUICK]) == 0
    first, second = capsys.readouterr().out.split("models/double, EAGLE3 (5,1,6), tp 1, SGLang 0.5.23\n")[1:]
    names = ["accept length", "acceptance by position", "  where reached", "  from counters", "output throughput"]
    for name in (*names, "TTFT p50, p99", "TPOT p50, p99"):
        assert f"\n{name}" in first
    # several tokens come at once: what lies between two arrivals is not the time of a token
    assert re.search(r"\nITL p50, p99 +[\d.]+, [\d.]+ ms between chunks of \d\.\d tokens\n", first)
    assert re.search(r"\n  server's average +- \(fewer than one log interval", first)
    assert "NOT COMPARABLE" not in first
    assert "NOT COMPARABLE: warm cache" in second


def test_every_load_has_its_row(capsys: Capture) -> None:
    plan = replace(PLAN, ttft_s=0.005, step_s=0.0005)
    loads = ["--concurrency", "2,4", "--request-rate", "200", "--request-rate", "100.5"]
    argv = ["--prompts", "12", "--max-new-tokens", "20", "--all-prompts", *loads]
    with TimedServer(plan) as server:
        assert main(["measure", server.url, *argv, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        # one warm-up; before each load the cache is emptied
        assert server.seen.flushes >= 4
        assert main(["measure", server.url, *argv]) == 0
    text = capsys.readouterr().out
    rows = found["rows"]
    assert [(row["concurrency"], row["request_rate"]) for row in rows] == [(2, None), (4, None), (0, 200.0), (0, 100.5)]
    assert [row["requests"] for row in rows] == [12] * 4
    assert {row["accept_length"]["value"] for row in rows} == {found["accept_length"]["value"]}
    assert found | rows[0] == found
    assert found["failure"] is None
    for load in ("concurrency 2", "concurrency 4", "200 requests/s", "100.5 requests/s"):
        assert f"12 at {load}, " in text


def test_seed_and_temperature_are_sent_and_told(capsys: Capture) -> None:
    argv = ["--prompts", "8", "--max-new-tokens", "4", "--request-rate", "500", "--json"]
    with TimedServer(TimedPlan(ttft_s=0.001, step_s=0.0005)) as server:

        def told(*more: str) -> tuple[dict[str, Any], list[object]]:
            server.seen.requests.clear()
            assert main(["measure", server.url, *argv, *more]) == 0
            content: dict[str, Any] = json.loads(capsys.readouterr().out)
            return content, list(server.seen.requests)

        first, sent = told("--seed", "3", "--temperature", "0.7")
        again, same = told("--seed", "3", "--temperature", "0.7")
        other, _ = told("--seed", "4", "--temperature", "0.7")
        greedy, _ = told("--seed", "3")
    assert (first["workload"]["seed"], first["workload"]["temperature"]) == (3, 0.7)
    assert {request["sampling_params"]["temperature"] for request in sent} == {0.7}  # type: ignore[index]
    assert [request["text"] for request in sent] == [request["text"] for request in same]  # type: ignore[index]
    ids = [one["workload"]["id"] for one in (first, again, other, greedy)]
    assert (ids[0] == ids[1], len(set(ids))) == (True, 3)
    # a rate alone is an open loop alone
    assert [row["concurrency"] for row in first["rows"]] == [0]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--request-rate", "0"], "request rate 0 is not above 0"),
        (["--request-rate", "1,nan"], "request rate nan is not above 0"),
        (["--request-rate", "inf"], "request rate inf is not above 0"),
        (["--request-rate", "1,2,1.0"], "request rate 1 is asked twice"),
        (["--request-rate", "fast"], "--request-rate: 'fast' is not a list of requests per second such as 2,4.5"),
        (["--request-rate", "1,,2"], "--request-rate: '1,,2' is not a list of requests per second such as 2,4.5"),
        (["--concurrency", "0"], "concurrency 0 is not above 0"),
        (["--concurrency", "8", "--concurrency", "8"], "concurrency 8 is asked twice"),
        (["--concurrency", "1.5"], "--concurrency: '1.5' is not a list of requests in flight such as 1,8"),
        (["--temperature", "-1"], "--temperature"),
        (["--temperature", "inf"], "temperature inf is not a number of 0 or more"),
        (["--temperature", "nan"], "--temperature"),
        (["--seed", "-1"], "--seed"),
        (["--seed", "x"], "--seed"),
    ],
)
def test_a_load_that_cannot_be_is_bad_input_before_anything_is_sent(
    capsys: Capture, argv: list[str], message: str
) -> None:
    assert message in refused(capsys, ["measure", "http://127.0.0.1:1", *argv], 2)


def test_the_rows_before_a_failure_are_kept(capsys: Capture) -> None:
    plan = replace(PLAN, ttft_s=0.002, step_s=0.0005, die_after_requests=4 + 12 + 5)
    argv = ["--prompts", "12", "--max-new-tokens", "8", "--all-prompts", "--concurrency", "2,4", "--json"]
    with TimedServer(plan) as server:
        assert main(["measure", server.url, *argv]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert [row["concurrency"] for row in found["rows"]] == [2]
    assert (found["failure"]["phase"], found["requests"]) == ("measure", 12)
    assert err.splitlines()[-1].startswith(f"specsweep: {server.url}: measure: ")


def test_acceptance_that_no_draft_earns_is_not_comparable(capsys: Capture) -> None:
    with TimedServer(TimedPlan(ttft_s=0.002, step_s=0.0005, pattern=(1, 2))) as server:
        assert main(["measure", server.url, *QUICK, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["comparable"] is False
    assert "verify steps accepted 1 or 2 drafts, which no draft does" in row["objections"][0]


def test_without_speculation_there_is_throughput_but_no_accept_length(capsys: Capture) -> None:
    with TimedServer(TimedPlan(ttft_s=0.005, step_s=0.001)) as server:
        assert main(["measure", server.url, *QUICK, "--json"]) == 0
        row = json.loads(capsys.readouterr().out)
        assert main(["measure", server.url, *QUICK]) == 0
    assert row["accept_length"] is None
    assert row["missing"]["accept_length"] == "no speculation"
    assert row["output_throughput"]["value"] > 0
    assert "accept length" not in capsys.readouterr().out


def test_it_ends_early_when_the_numbers_are_narrow() -> None:
    with TimedServer(TimedPlan(ttft_s=0.02, step_s=0.004, pattern=(1,))) as server:
        asked = MeasureRequest(
            endpoint=Endpoint(url=server.url), prompts=90, concurrency=(2,), max_new_tokens=20, half_width=0.4
        )
        measured = measure_server(asked)
    assert isinstance(measured, MeasuredServer), measured
    row = measured_json(measured)
    assert row["requests"] < 90 == row["prompts"]
    assert row["stopped"].startswith("narrow enough")
    assert "ended early: narrow enough after" in show_measured(measured)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("127.0.0.1:30000", "is not an http or https URL; write the server's root"),
        ("ftp://127.0.0.1", "is not an http or https URL"),
        ("http://", "is not an http or https URL"),
        ("http://127.0.0.1:70000", "is not an http or https URL"),
        ("http://127.0.0.1:30000/v1", "is not a server's root"),
        ("http://127.0.0.1:30000/?a=1", "is not a server's root"),
        ("http://me:secret@127.0.0.1:30000", "must not hold a user or password"),
    ],
)
def test_a_bad_url_is_bad_input(capsys: Capture, url: str, message: str) -> None:
    error = refused(capsys, ["measure", url], 2)
    assert message in error
    assert "secret" not in error


def test_nobody_there_or_somebody_else_is_the_environment(capsys: Capture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert "Connection refused" in refused(capsys, ["measure", url], 3)
    with TimedServer(TimedPlan()) as server:
        error = refused(capsys, ["measure", server.url + "/elsewhere"], 3)
    assert "is not an SGLang server: it has no /server_info" in error


def test_the_api_key_comes_from_the_named_variable(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THE_KEY", raising=False)
    with TimedServer(TimedPlan(ttft_s=0.002, step_s=0.001, api_key="s3cret")) as server:
        assert "HTTP 401: it wants an API key" in refused(capsys, ["measure", server.url], 3)
        argv = ["measure", server.url, *QUICK, "--api-key-env", "THE_KEY"]
        assert "THE_KEY" in refused(capsys, argv, 3)
        monkeypatch.setenv("THE_KEY", "wr0ng")
        error = refused(capsys, argv, 3)
        assert "the key in THE_KEY is refused" in error
        assert "wr0ng" not in error
        monkeypatch.setenv("THE_KEY", "s3cret")
        assert main([*argv, "--json"]) == 0
    assert "s3cret" not in capsys.readouterr().out


def test_a_server_that_answers_no_request_is_failed_work(capsys: Capture) -> None:
    with TimedServer(TimedPlan(fail_all=500)) as server:
        error = refused(capsys, ["measure", server.url, *QUICK], 1)
    assert "warmup" in error
    assert "HTTP 500" in error


def test_prompts_that_are_not_there_are_bad_input(capsys: Capture) -> None:
    with TimedServer(TimedPlan()) as server:
        assert "nowhere" in refused(capsys, ["measure", server.url, "--prompts", "nowhere.jsonl"], 2)


def test_it_loads_neither_ray_nor_mlflow() -> None:
    heavy = "ray mlflow optuna torch"
    code = f"import sys, sweeps.measuring; print(sorted(set('{heavy}'.split()) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"
