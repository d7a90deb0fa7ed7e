"""The two ends of an isolation, given or chosen, and the layout that the draft was trained on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from isolation_doubles import isolation, measure, server, study_place, task_of
from search_doubles import succeed
from trial_builders import WORKLOAD, cell, row

from actors.job import TrialJob
from results.failures import Failure
from results.objective import Objective
from results.probed_feed import TrainedOn
from results.ranking import rank
from results.records import TrialRecord
from search_spaces.config import EngineConfig
from search_spaces.errors import InputError
from sweeps.home import StudyPlace
from sweeps.isolation_ends import choose_ends, trained_on
from sweeps.planning import make_plan
from sweeps.recording import record_of

place = pytest.fixture(study_place)


def test_taps_that_are_none_are_refused_before_anything_runs(place: StudyPlace) -> None:
    with pytest.raises(InputError, match="--trained-on: '0;3;7' is not a list of taps"):
        isolation(place, trained_on="0;3;7")


def test_trials_and_settings_name_the_ends(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    measure(place, server((2, 16, 29), 3, 1), "t0001")
    ends = isolation(place, suspect="t0001", reference="t0000-a1").plan().ends
    assert (ends.suspect, ends.reference, ends.chosen_as) == (server((2, 16, 29), 3, 1), server(), "given")
    text = "{layout: [0, 3, 7], num_steps: 1, eagle_topk: 1, num_draft_tokens: 9}"
    assert isolation(place, suspect=text).plan().ends.suspect == server(steps=1, tp=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"suspect": "t9"}, "--suspect: 't9' is neither a trial of this study nor a setting"),
        ({"reference": "{num_steps: 1, eagle_topk: 4, num_draft_tokens: 8}"}, "--reference: cannot run: need n-1=7"),
        ({"reference": "{num_step: 1}"}, "--reference: num_step: unknown key; did you mean num_steps?"),
        ({}, "no setting could be ranked"),
    ],
)
def test_ends_that_are_none_are_refused(place: StudyPlace, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(").replace("?", r"\?")):
        isolation(place, **options).plan()


FED, TAPS = (2, 16, 29), (0, 3, 7)


@pytest.mark.parametrize(
    ("trials", "taps"),
    [
        # (layout, steps of the triple, verify steps for the same 41 tokens): fewer is better
        ([(FED, 3, 30), (TAPS, 3, 22)], TAPS),
        # a deep triple flatters the layout that it was measured with
        ([(FED, 3, 26), (TAPS, 1, 30)], None),
        ([(FED, 3, 26), (FED, 1, 36), (TAPS, 1, 30)], TAPS),
        # best of those it can be held against, over what both were measured with
        ([(FED, 1, 36), (TAPS, 1, 30), (FED, 3, 29), (TAPS, 3, 30), ((1, 2, 3), 2, 21)], TAPS),
        ([(FED, 1, 36), (TAPS, 1, 30), ((1, 2, 3), 3, 30), ((4, 5, 6), 3, 22)], None),
        ([(TAPS, 1, 30), (TAPS, 3, 22)], None),
    ],
)
def test_the_training_is_inferred_where_nothing_but_the_layout_differs(
    trials: list[tuple[tuple[int, ...], int, int]], taps: tuple[int, ...] | None
) -> None:
    records = [
        made(number, server(layout, steps, 1), count, 1.0) for number, (layout, steps, count) in enumerate(trials)
    ]
    found = trained_on(None, records, WORKLOAD.workload_id)
    assert (found and found.taps) == taps
    assert found is None or found.source == "inferred"


def test_the_training_is_not_inferred_from_what_does_not_count() -> None:
    records = [made(0, server(FED, 3, 1), 22, 1.0), made(1, server(TAPS, 3, 1), 30, 1.0)]
    refused = replace(records[0], cells=(replace(records[0].cells[0], not_ranked=("warm cache",)),))
    crashed = replace(records[0], failure=Failure(phase="run", kind="crash", message="gone"))
    for bad in (refused, crashed):
        assert trained_on(None, [bad, records[1]], WORKLOAD.workload_id) is None
    assert trained_on(None, records, "another workload") is None
    assert trained_on("4,5,6", records, WORKLOAD.workload_id) == TrainedOn(taps=(4, 5, 6), source="given")


def test_a_choice_that_accepts_no_more_than_the_suspect_explains_nothing(place: StudyPlace) -> None:
    """The objective may prefer a setting, even the suspect, that accepts little: then the one that accepts most."""
    suspect, chosen, better = server((2, 16, 29), 3, 1), server((2, 16, 29), 1, 1), server((0, 3, 7), 3, 1)

    def ended(fastest: EngineConfig, steps: dict[EngineConfig, int]) -> tuple[EngineConfig, str]:
        records = [
            made(number, config, count, 1.0 if config == fastest else 4.0)
            for number, (config, count) in enumerate(steps.items())
        ]
        ranking = rank(records, Objective(metric="output_throughput", concurrency=1))
        ends = choose_ends(make_plan(place.read_spec()), ranking, records, suspect="t0000")
        return ends.chosen, ends.chosen_as

    lengths = {suspect: 30, chosen: 36, better: 22}  # verify steps for the same 41 tokens
    assert ended(chosen, lengths)[0] == better
    assert ended(suspect, lengths)[0] == better
    assert ended(better, lengths) == (better, "the study's choice")
    assert ended(chosen, {suspect: 22, chosen: 36, better: 22}) == (chosen, "the study's choice")


def made(number: int, config: EngineConfig, steps: int, seconds: float) -> TrialRecord:
    rows = tuple(row(name, tokens=41, finished_s=seconds, steps=steps, triple=config.triple) for name in ("p0", "p1"))
    seen = replace(cell(seconds=seconds, triple=config.triple), rows=rows)
    outcome = replace(succeed(TrialJob(trial_id="t", config=config, workload=WORKLOAD)), cells=(seen,))
    return record_of("case", task_of(config, f"t{number:04d}"), outcome)
