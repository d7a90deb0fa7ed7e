"""What the report on a study shows as its suspect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import trial_builders
from search_doubles import succeed
from spec_files import write_spec
from trial_builders import WORKLOAD

from actors.job import TrialJob
from search_spaces.sglang_rules import RuleBook
from sweeps.baselines import fixed_trials
from sweeps.claiming import claim_study, save_spec
from sweeps.legal_space import LegalSpace
from sweeps.planning import make_plan
from sweeps.recording import record_of, write_record
from sweeps.spec import load_spec
from sweeps.study_report import report_of
from sweeps.tasks import FixedTrial, open_tasks

SETS = ("engine.device=cpu", "search.sampler=surface")


def test_another_suspect_is_measured_and_reported_as_the_suspect(tmp_path: Path) -> None:
    """Inside the space and outside it, and also where the search had measured it already."""
    first = "{num_steps: 1, eagle_topk: 1, num_draft_tokens: 2%s}"
    second = "{num_steps: 3, eagle_topk: 1, num_draft_tokens: 4%s}"
    spec = load_spec(write_spec(tmp_path), (*SETS, "suspect=" + first % ""))
    place = claim_study(spec, tmp_path / "home")
    save_spec(place, spec)
    place.records.open_for_write()
    for base, role, steps in (("t0000", "suspect", 1), ("t0001", "search", 3)):
        effective = replace(trial_builders.config(steps), layout=(2, 16, 29))
        task = FixedTrial(base=base, role=role, setting=None, config=effective)  # type: ignore[arg-type]
        ((_, begun),) = open_tasks([task], ())
        outcome = succeed(TrialJob(trial_id=begun.trial_id, config=effective, workload=WORKLOAD))
        write_record(place.records, record_of(place.name, begun, outcome), outcome)
    names = []
    for suspect in (first % "", second % "", "null", first % ", tp_size: 2", second % ", tp_size: 2"):
        spec = load_spec(tmp_path / "case.yaml", (*SETS, "suspect=" + suspect))
        assert claim_study(spec, tmp_path / "home") == place
        save_spec(place, spec)
        reported, plan = report_of(place).suspect, make_plan(spec)
        legal = LegalSpace(plan.space, RuleBook(plan.context).resolve)
        fixed = fixed_trials(plan, legal, (), repeats=1, expected_trials=2)
        names += [trial.base for trial in fixed if trial.role == "suspect"]
        if suspect in (first % "", second % ""):
            assert reported is not None
            assert plan.suspect is not None
            assert reported.setting.effective == plan.suspect.effective
            assert "suspect" in reported.setting.roles
        else:
            assert reported is None or "suspect" not in reported.setting.roles
    # the space asks for (3,1,4) as it is, and for (1,1,2) with another number of tokens
    assert len(set(names)) == len(names) == 3
