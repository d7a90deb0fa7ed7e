"""A study as a driver opens it: what its spec, its folder and its storage say, in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from actors.engines.preflight import FoundEngine
from actors.engines.server_spec import ServerSpec
from actors.load.workload import Workload
from results.objective import Objective
from results.records import TrialRecord
from results.store import StudyFolder
from search_spaces.checkpoint_identity import checkpoint_identity
from search_spaces.config import Setting
from search_spaces.sglang_rules import RuleBook
from sweeps.baselines import first_settings, fixed_trials
from sweeps.budget import Budget
from sweeps.engine_check import refusals
from sweeps.home import StudyPlace
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.objectives import objective_of
from sweeps.pace import pace_of
from sweeps.plan_time import expected_trials
from sweeps.planning import SweepPlan
from sweeps.spec_schema import SweepSpec
from sweeps.stored_study import open_study
from sweeps.study import SearchStudy
from sweeps.study_extras import extras_of
from sweeps.tasks import FixedTrial


@dataclass(frozen=True, kw_only=True)
class OpenedStudy:
    """`records` are those at the opening; `ledger` goes with the study as it runs."""

    spec: SweepSpec
    place: StudyPlace
    plan: SweepPlan
    workload: Workload
    folder: StudyFolder
    records: tuple[TrialRecord, ...]
    objective: Objective
    ledger: Ledger
    legal: LegalSpace
    study: SearchStudy

    @property
    def budget(self) -> Budget:
        return self.spec.budget.limits

    def refuse(self, found: FoundEngine, server: ServerSpec) -> None:
        """Put into the ledger what SGLang itself says it would not run."""
        still_open = [config for config in self.legal.configs if self.ledger.is_open(config)]
        for config, reason in refusals(found, server, still_open).items():
            self.ledger.refuse(config, reason)

    def fixed_trials(self, both: Setting | None, *, switching: bool) -> tuple[FixedTrial, ...]:
        """What is measured whatever the search does; `both` is measured by a switch and on a fresh launch."""
        pace = replace(pace_of(self.spec), switches=switching)
        extras = extras_of(self.spec, self.plan, pace)
        return fixed_trials(
            self.plan,
            self.legal,
            self.records,
            repeats=self.plan.baseline_launches,
            expected_trials=expected_trials(self.plan, pace, extras, self.budget),
            both=both,
        )

    def enqueue_first(self, both: Setting | None) -> None:
        """What the search is to try before anything it chooses; each once in the life of the study."""
        first = first_settings(self.legal, self.plan.suspect_setting)
        for label, setting in first:
            self.study.enqueue(setting, role="suspect" if label == "suspect" else "search", label=label)
        if both is not None and all(setting != both for _, setting in first):
            self.study.enqueue(both, role="search", label="both ways")


def open_for_sweep(
    spec: SweepSpec, place: StudyPlace, plan: SweepPlan, workload: Workload, folder: StudyFolder
) -> OpenedStudy:
    """Open the study of a folder that is held and writable. InputError and EnvironmentProblem as `open_study`."""
    records, objective = folder.records(), objective_of(spec)
    ledger = Ledger(records, repeats=spec.budget.repeats)
    legal = LegalSpace(plan.space, RuleBook(plan.context).resolve)
    study = open_study(
        place.storage_url(spec),
        spec.study,
        legal=legal,
        ledger=ledger,
        direction=objective.direction,
        sampler=spec.search.sampler,
        seed=spec.search.seed,
        identity=_identity(spec, workload.workload_id),
    )
    return OpenedStudy(
        spec=spec,
        place=place,
        plan=plan,
        workload=workload,
        folder=folder,
        records=records,
        objective=objective,
        ledger=ledger,
        legal=legal,
        study=study,
    )


def _objective_load(spec: SweepSpec) -> dict[str, Any]:
    rate = spec.objective.request_rate
    if rate is None:
        return {"objective.concurrency": spec.objective_concurrency}
    return {"objective.request_rate": rate}


def _identity(spec: SweepSpec, workload_id: str) -> dict[str, Any]:
    """What a study is about beyond its space and direction: with another of these its trials cannot be compared."""
    return {
        "target": checkpoint_identity(spec.target),
        "draft": checkpoint_identity(spec.draft),
        "workload": workload_id,
        "concurrency": list(spec.workload.concurrency),
        "objective.metric": spec.objective.metric,
        **_objective_load(spec),
        "engine.args": dict(sorted(spec.engine.args.items())),
    }
