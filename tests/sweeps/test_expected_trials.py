"""Over how many trials baselines are spread, and that a plan's baselines are those that the run makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_doubles import Events, InstantPool, MemoryStore, MemoryStudy, succeed
from spec_files import write_spec
from trial_builders import WORKLOAD

from actors.job import TrialJob, TrialOutcome
from results.objective import Objective
from search_spaces.sglang_rules import RuleBook
from sweeps.baselines import both_ways, fixed_trials
from sweeps.budget import Budget
from sweeps.interrupts import StopRequest
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.loop import SweepLoop
from sweeps.loop_plan import LoopPlan
from sweeps.pace import Pace, pace_of
from sweeps.plan_time import expected_trials, plan_time
from sweeps.planning import SweepPlan, make_plan
from sweeps.spec import load_spec
from sweeps.study_extras import StudyExtras, extras_of
from sweeps.study_trial import StudyTrial

EIGHT = "space.num_steps=[1, 2, 3, 4, 5, 6, 7, 8]"
LAUNCHED, SWITCHED = "engine.device=cuda", "engine.device=cpu"


class RepeatingStudy(MemoryStudy):
    """Proposes what is open, what was not seen first."""

    def ask(self) -> StudyTrial:
        if not self.waiting:
            configs = [config for config in self.legal.configs if self.ledger.is_open(config)]
            config = next((config for config in configs if self.ledger.is_unseen(config)), configs[0])
            candidate = self.legal.nearest(next(self.legal.space.settings()), lambda it: it == config, Random(0))
            assert candidate is not None
            self.add(candidate.setting)
        return super().ask()


class SwitchingServer:
    """One server that goes on with whatever speculates, and is launched for anything else."""

    def __init__(self) -> None:
        self.speculates = False

    def run(self, job: TrialJob) -> TrialOutcome:
        goes_on = self.speculates and not job.fresh and not job.config.is_baseline
        self.speculates = not job.config.is_baseline and not job.fresh
        outcome = succeed(job)
        assert outcome.launch is not None
        return replace(outcome, launch=outcome.launch.counted(0 if goes_on else 1))


def roles_of_run(
    plan: SweepPlan, pace: Pace, extras: StudyExtras, budget: Budget, capacity: int = 1
) -> tuple[Sequence[str], int]:
    """The roles of what a run launches, in order, and how many trials of the search there are."""
    legal = LegalSpace(plan.space, RuleBook(plan.context).resolve)
    assert legal.size == plan.servers.effective
    ledger, store = Ledger(repeats=plan.servers.repeats), MemoryStore()
    pool = InstantPool(run=SwitchingServer().run if pace.switches else succeed, capacity=capacity)
    fixed = fixed_trials(
        plan,
        legal,
        (),
        repeats=plan.baseline_launches,
        expected_trials=expected_trials(plan, pace, extras, budget),
        both=both_ways(legal, plan.suspect_setting) if pace.switches else None,
    )
    loop = SweepLoop(
        study=RepeatingStudy(legal, ledger),
        store=store,
        pool=pool,
        legal=legal,
        ledger=ledger,
        plan=LoopPlan(
            workload=WORKLOAD,
            objective=Objective(),
            fixed=fixed,
            budget=budget,
            repeats=plan.servers.repeats,
            retries=0,
        ),
        observer=Events(),
        stop=StopRequest(),
        heartbeat=lambda: None,
    )
    loop.run()
    roles = ["baseline" if job.config.is_baseline else job.trial_id[0] for job in pool.launched]
    return roles, sum(role == "t" for role in roles)


def planned(folder: Path, *overrides: str) -> tuple[SweepPlan, Pace, StudyExtras, Budget]:
    spec = load_spec(write_spec(folder), [EIGHT, *overrides])
    plan, pace = make_plan(spec), pace_of(spec)
    return plan, pace, extras_of(spec, plan, pace), spec.budget.limits


def test_baselines_span_repeats_and_what_launches_leave(tmp_path: Path) -> None:
    for overrides, expected in (
        ((LAUNCHED,), 8),
        ((LAUNCHED, "budget.repeats=3"), 24),
        ((LAUNCHED, "budget.repeats=3", "budget.trials=20"), 20),
        ((LAUNCHED, "budget.repeats=3", "budget.launches=20"), 17),
        ((LAUNCHED, "budget.launches=2", "budget.baselines=3"), 1),
        # servers are switched: one load for the eight, one after the middle baseline, the check
        ((SWITCHED, "budget.launches=6"), 8),
        ((SWITCHED, "budget.launches=6", "budget.baselines=3"), 8),
        ((SWITCHED, "budget.launches=13", "budget.repeats=2", "budget.baselines=3"), 15),
    ):
        assert expected_trials(*planned(tmp_path, *overrides)) == expected, overrides


def test_the_last_baseline_is_the_last_launch(tmp_path: Path) -> None:
    """24 trials, of which 20 launches leave 17: drift is tested over all of them."""
    plan, pace, extras, budget = planned(tmp_path, LAUNCHED, "budget.repeats=3", "budget.launches=20")
    assert plan.baseline_launches == 3
    for capacity in (1, 3):
        roles, _ = roles_of_run(plan, pace, extras, budget, capacity)
        assert [place for place, role in enumerate(roles) if role == "baseline"] == [0, 9, 19]
    plan, pace, extras, _ = planned(tmp_path, LAUNCHED, "budget.repeats=3")
    roles, _ = roles_of_run(plan, pace, extras, Budget())
    assert [place for place, role in enumerate(roles) if role == "baseline"] == [0, 13, 26]


LIMITS = st.none() | st.integers(1, 40)


@given(data=st.data(), limits=st.tuples(LIMITS, LIMITS), baselines=st.integers(1, 5), capacity=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_the_plans_baselines_are_those_of_the_run(
    launched_plans: list[tuple[SweepPlan, Pace, StudyExtras]],
    data: Any,
    limits: tuple[int | None, int | None],
    baselines: int,
    capacity: int,
) -> None:
    plan, pace, extras = data.draw(st.sampled_from(launched_plans))
    plan, budget = replace(plan, baseline_launches=baselines), Budget(trials=limits[0], launches=limits[1])
    time = plan_time(plan, pace, extras, budget)
    roles, searched = roles_of_run(plan, pace, extras, budget, capacity)
    assert (roles.count("baseline"), len(roles)) == (time.baselines, time.trials)
    if baselines > 1 and time.baselines == plan.baselines * baselines:
        # the last ones close the study
        assert searched == expected_trials(plan, pace, extras, budget)
        assert roles[-1] == "baseline"


@given(trials=LIMITS, launches=LIMITS, baselines=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_the_same_where_one_server_is_switched(
    switched_plan: tuple[SweepPlan, Pace, StudyExtras], trials: int | None, launches: int | None, baselines: int
) -> None:
    plan, pace, extras = switched_plan
    plan, budget = replace(plan, baseline_launches=baselines), Budget(trials=trials, launches=launches)
    time = plan_time(plan, pace, extras, budget)
    roles, searched = roles_of_run(plan, pace, extras, budget)
    assert roles.count("baseline") == time.baselines
    assert searched <= time.settings + time.switched


@pytest.fixture(scope="module")
def launched_plans(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[SweepPlan, Pace, StudyExtras]]:
    folder = tmp_path_factory.mktemp("plans")
    suspect = "suspect={num_steps: 9, eagle_topk: 1, num_draft_tokens: 10, tp_size: 4}"
    more = ([], ["budget.repeats=3"], ["space.tp_size=[1, 2]"], [suspect, "budget.repeats=2"])
    return [planned(folder, LAUNCHED, *overrides)[:3] for overrides in more]


@pytest.fixture(scope="module")
def switched_plan(tmp_path_factory: pytest.TempPathFactory) -> tuple[SweepPlan, Pace, StudyExtras]:
    return planned(tmp_path_factory.mktemp("switched"), SWITCHED)[:3]
