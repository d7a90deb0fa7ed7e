"""The traces that an isolation makes beside its probes: which, how deep, and once."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from isolation_doubles import SUSPECT, ProbingPool, isolation, measure, run, server, study_place
from search_doubles import Events, fail
from trial_builders import WORKLOAD

from actors.job import TrialOutcome
from results.failures import Failure
from results.study_surface import traces_path
from results.trace_launches import read_trace_launches
from results.traces import TracedPrompt, TraceFacts, append_prompts, write_facts
from sweeps.home import StudyPlace
from sweeps.interrupts import StopRequest
from sweeps.isolation_view import plan_json, show_plan

place = pytest.fixture(study_place)


def test_traces_at_both_tp_sizes_are_made_once_beside_the_probes(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    found = isolation(place, trace=True)
    plan = found.plan()
    assert [(trace.config, len(trace.left)) for trace in plan.traces] == [
        (SUSPECT, 2),
        (replace(SUSPECT, tp_size=1), 2),
    ]
    assert plan_json("case", plan)["traces"][0] == {
        "layout": "2,16,29", "tp_size": 2, "eagle_topk": 1, "num_steps": 1, "flags": {},
        "prompts_left": 2, "prompts_done": 0,
        "prompts_untraceable": 0,
    }  # fmt: skip
    assert "would trace layout 2,16,29, tp 2, topk 1, 1 steps, 2 prompts" in show_plan(plan)
    pool = ProbingPool()
    done = run(found, pool)
    assert done is not None
    # the corners end at tp 2, whose server is traced and probed; then tp 1
    recorded = [
        ("trace" if job.trace else "probe", job.config.tp_size)
        for job in pool.launched
        if job.trace is not None or job.probe_tokens is not None
    ]
    assert recorded == [("trace", 2), ("probe", 2), ("probe", 1), ("trace", 1)]
    isolated = found.conclude(done)
    (agreement,) = isolated.case.agreements
    assert (agreement.tp_sizes, agreement.prompts, agreement.by_depth) == ((1, 2), 2, (1.0,))
    kept = json.loads((place.folder / "isolate.json").read_text())
    assert kept["gap"]["traced_agreement"][0]["tp_sizes"] == [1, 2]
    evidence = next(row["evidence"] for row in kept["verdicts"] if row["cause"] == "parallelism")
    assert "traced at tp 1 and 2 with layout 2,16,29 at topk 1: the draft proposes the same at 100.0%" in evidence
    # what is traced is not traced again, and what it cost is known
    again = isolation(place, trace=True).plan()
    assert (again.traces, again.needs_servers) == ((), False)
    assert [job.ended for job in read_trace_launches(traces_path(place.records)).jobs] == [True, True]


@pytest.mark.parametrize("failing", [1, 2])
def test_verdicts_do_without_traces_that_cannot_be_made_here(place: StudyPlace, failing: int) -> None:
    """A node without SGLang: no trace of that size could succeed, but everything else is measured."""
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    found, events = isolation(place, trace=True), Events()
    done = found.run(found.plan(), NoSglang(tp_size=failing), events, StopRequest())
    assert done is not None
    assert len(done.feeds) == 2
    assert [line for kind, line in events.seen if kind == "said" and "nothing more" in line] == [
        f"nothing more is traced at tp {failing}: trace of layout 2,16,29, tp {failing}, topk 1, 1 steps: no SGLang"
    ]
    isolated = found.conclude(done)
    assert isolated.case.agreements == ()
    assert (place.folder / "isolate.json").exists()


@dataclass
class NoSglang(ProbingPool):
    """Traces at one TP size land on a node where SGLang is missing."""

    tp_size: int = 0

    def wait(self, timeout_s: float) -> list[TrialOutcome]:
        if self.running and self.running[-1].trace is not None and self.running[-1].config.tp_size == self.tp_size:
            return [fail(self.running.pop(), Failure(phase="launch", kind="no_engine", message="no SGLang"))]
        return super().wait(timeout_s)


def test_nothing_is_traced_unasked_or_at_tp_1(place: StudyPlace) -> None:
    measure(place, server(tp=1), "t0000")
    measure(place, replace(SUSPECT, tp_size=1), "t0001")
    measure(place, SUSPECT, "t0002")
    assert isolation(place).plan().traces == ()
    alone = isolation(place, trace=True, suspect="t0001-a1").plan()
    assert (alone.traces, alone.not_traced) == ((), "the suspect runs at tp 1, where nothing is split")
    assert "nothing would be traced: the suspect runs at tp 1" in show_plan(alone)
    assert plan_json("case", alone)["not_traced"] == alone.not_traced
    assert isolation(place).plan().not_traced == ""
    assert len(isolation(place, trace=True, suspect="t0002-a1").plan().traces) == 2


def test_the_suspect_is_traced_as_deep_as_what_is_there(place: StudyPlace) -> None:
    """A study that follows its surface has traced tp 1 at the greatest steps of its space."""
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    found = isolation(place, trace=True)
    facts = TraceFacts(
        layout=(2, 16, 29), tp_size=1, eagle_topk=1, num_steps=3, workload_id=found.workload.workload_id,
        ties="lowest_index",
    )  # fmt: skip
    folder = traces_path(place.records) / facts.folder_name
    write_facts(folder, facts)
    texts = [
        TracedPrompt(prompt_id=prompt.prompt_id, request_id="", segment="", prompt_tokens=1, length=2, output_ids=(1,))
        for prompt in WORKLOAD.prompts
    ]
    append_prompts(folder, texts)
    (left,) = found.plan().traces
    assert left.config == server((2, 16, 29), 3)
