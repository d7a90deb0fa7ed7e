"""Which two TP sizes an isolation traces, at which steps, and why it traces nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from isolation_doubles import isolation, measure, server, study_place
from trial_builders import WORKLOAD

from results.study_surface import traces_path
from results.traces import Trace, TracedPrompt, TraceFacts, append_prompts, parallel_flags, trace_flags, write_facts
from search_spaces.config import EngineConfig, Flags
from sweeps import tp_traces
from sweeps.home import StudyPlace
from sweeps.tp_traces import TpTraces, plan_tp_traces, tp_agreements

place = pytest.fixture(study_place)

LAYOUT = (2, 16, 29)
SUSPECT = server(LAYOUT, 1, tp=8)


def attention_in(groups: int) -> Flags:
    return (("dp_size", groups), ("enable_dp_attention", True))


def traced(place: StudyPlace, tp_size: int, steps: int, layout: tuple[int, ...] = LAYOUT, flags: Flags = ()) -> None:
    """A trace of the first prompt only."""
    facts = TraceFacts(
        layout=layout, tp_size=tp_size, eagle_topk=1, num_steps=steps, workload_id=WORKLOAD.workload_id,
        ties="lowest_index", flags=trace_flags(flags), parallel=parallel_flags(flags),
    )  # fmt: skip
    folder = traces_path(place.records) / facts.folder_name
    write_facts(folder, facts)
    name = WORKLOAD.prompts[0].prompt_id
    text = TracedPrompt(prompt_id=name, request_id="", segment="", prompt_tokens=1, length=2, output_ids=(1,))
    append_prompts(folder, [text])


def planned(place: StudyPlace, suspect: EngineConfig, sizes: Sequence[int]) -> TpTraces:
    return plan_tp_traces(place.records, suspect, isolation(place).sweep.context, WORKLOAD, sizes)


@pytest.mark.parametrize(("sizes", "beside"), [([8, 4, 2], 2), ([8, 4], 4), ([8], 1), ([], 1), ([16], 1)])
def test_beside_the_smallest_tp_size_of_the_study(place: StudyPlace, sizes: list[int], beside: int) -> None:
    measure(place, SUSPECT, "t0000")
    found = planned(place, SUSPECT, sizes)
    assert [trace.config for trace in found.plans] == [SUSPECT, replace(SUSPECT, tp_size=beside)]
    assert found.problem == ""


def test_beside_the_smallest_tp_size_that_is_traced_already(place: StudyPlace) -> None:
    """A target that needs several devices: the study traced it at its smallest size."""
    traced(place, 4, 3)
    traced(place, 2, 3, layout=(0, 3, 7))
    traced(place, 1, 3, flags=(("kv_cache_dtype", "fp8_e5m2"),))  # with flags that the suspect does not have
    (found,) = planned(place, SUSPECT, [2, 4, 8]).plans[:1]
    assert found.config == server(LAYOUT, 3, tp=8)
    (_, beside) = planned(place, SUSPECT, [2, 4, 8]).plans
    assert (beside.config, beside.done, len(beside.left)) == (server(LAYOUT, 3, tp=4), 1, 1)


def test_at_steps_that_both_are_traced_at(place: StudyPlace) -> None:
    for tp_size, steps in ((4, 2), (4, 5), (8, 2), (8, 3)):
        traced(place, tp_size, steps)
    assert [trace.config for trace in planned(place, SUSPECT, [8]).plans] == [
        server(LAYOUT, 2, tp=8),
        server(LAYOUT, 2, tp=4),
    ]


def test_a_trace_that_does_not_reach_the_suspects_steps_is_none(place: StudyPlace) -> None:
    traced(place, 4, 1)
    deep = server(LAYOUT, 3, tp=8)
    assert [trace.config for trace in planned(place, deep, [2, 8]).plans] == [deep, server(LAYOUT, 3, tp=2)]


def test_flags_of_parallelism_stay_at_the_suspects_size(place: StudyPlace) -> None:
    """Eight groups of attention are none of tp 1's."""
    plain = ("kv_cache_dtype", "fp8_e5m2")
    suspect = replace(SUSPECT, flags=(*attention_in(8), plain))
    served, beside = planned(place, suspect, [8]).plans
    assert served.config.flags == suspect.flags
    assert (beside.config.tp_size, beside.config.flags) == (1, (plain,))


def test_a_trace_without_the_suspects_flags_of_parallelism_is_not_its_own(place: StudyPlace) -> None:
    """The study traced tp 1 and 8 on plain servers; nobody knows yet what attention in groups proposes."""
    suspect = replace(SUSPECT, flags=attention_in(8))
    for tp_size, steps in ((1, 2), (8, 5)):
        traced(place, tp_size, steps)
    served, beside = planned(place, suspect, [8]).plans
    assert (served.config, served.done) == (replace(server(LAYOUT, 2, tp=8), flags=suspect.flags), 0)
    assert (beside.config, beside.done) == (server(LAYOUT, 2, tp=1), 1)
    traced(place, 8, 2, flags=suspect.flags)
    served, beside = planned(place, suspect, [8]).plans
    assert (served.done, beside.done) == (1, 1)
    # neither does its own trace say anything about the plain server's
    assert next(trace.config for trace in planned(place, SUSPECT, [8]).plans) == server(LAYOUT, 2, tp=8)


def test_only_the_suspects_own_traces_are_compared(place: StudyPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    suspect, other = replace(SUSPECT, flags=attention_in(8)), attention_in(4)
    for tp_size, flags in ((1, ()), (1, other), (2, ()), (8, ()), (8, other)):
        traced(place, tp_size, 1, flags=flags)
    seen: list[set[tuple[int, Flags]]] = []

    def agreements(traces: Sequence[Trace], *_: object) -> tuple[()]:
        seen.append({(trace.facts.tp_size, trace.facts.parallel) for trace in traces})
        return ()

    monkeypatch.setattr(tp_traces, "agreements", agreements)
    tp_agreements(place.records, suspect)
    traced(place, 8, 1, flags=suspect.flags)
    tp_agreements(place.records, suspect)
    tp_agreements(place.records, SUSPECT)
    plain: set[tuple[int, Flags]] = {(1, ()), (2, ())}
    assert seen == [plain, plain | {(8, suspect.flags)}, plain | {(8, ())}]


def test_why_nothing_is_traced(place: StudyPlace) -> None:
    assert planned(place, server(tp=1), [1, 2]) == TpTraces(problem="the suspect runs at tp 1, where nothing is split")
    found = planned(place, replace(SUSPECT, flags=attention_in(3)), [2])
    assert found.plans == ()
    assert found.problem.startswith("beside tp 2: tp_size 8 cannot be split into 3 attention groups (")
