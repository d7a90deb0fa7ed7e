"""Where a study stands, read from its folder without disturbing the driver that may be running it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from results.isolation_report import kept_sentences
from results.measured_settings import MeasuredSetting
from results.objective import METRIC_WORDS, Objective
from results.ranking import RankedSetting, rank
from results.records import TrialRecord
from results.report import Report, build_report
from search_spaces.errors import InputError
from search_spaces.sglang_rules import RuleBook
from sweeps.baselines import fixed_trials
from sweeps.home import StudyPlace
from sweeps.lease import Owner, folder_owner
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.planning import make_plan
from sweeps.spec_schema import SweepSpec
from sweeps.tasks import open_tasks
from sweeps.terminal import show_config

STATUS_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class StudyStatus:
    """One look at a study. `left` are launches that the space and the fixed trials still hold, budget aside; None when
    the models are not on this machine and it cannot be told."""

    place: StudyPlace
    objective: Objective
    owner: Owner | None
    records: int
    failed: int
    left: int | None
    best: RankedSetting | None
    mlflow_is_stale: bool

    def to_json(self) -> dict[str, Any]:
        owner = self.owner and {"host": self.owner.host, "pid": self.owner.pid}
        return {
            "schema": STATUS_SCHEMA,
            "study": self.place.name,
            "folder": str(self.place.folder),
            "running": self.owner is not None,
            "driver": owner,
            "records": self.records,
            "failed": self.failed,
            "left": self.left,
            "objective": self.objective.metric,
            "best": None if self.best is None else _best_json(self.best),
            "mlflow_is_stale": self.mlflow_is_stale,
        }

    def to_text(self) -> str:
        rows = [
            ("folder", str(self.place.folder)),
            ("driver", "none runs" if self.owner is None else f"running: {self.owner}"),
            ("launches", f"{self.records} recorded ({self.failed} failed), {_count(self.left)} left in the space"),
            ("best so far", "nothing measured yet" if self.best is None else self._show_best(self.best)),
        ]
        if self.mlflow_is_stale:
            rows.append(("MLflow", f"misses something: specsweep sync {self.place.name}"))
        if self.owner is None:
            todo = "report" if self.left == 0 else "resume"
            rows.append(("next", f"specsweep {todo} {self.place.name}"))
        return "\n".join([f"Study {self.place.name}", *(f"  {name:<12} {text}" for name, text in rows)])

    def _show_best(self, best: RankedSetting) -> str:
        value = "" if best.value is None else f", {METRIC_WORDS[self.objective.metric]} {best.value.value:.4g}"
        length = "" if best.accept_length is None else f", accept length {best.accept_length.value:.3f}"
        return f"{show_config(best.setting.effective)}{value}{length}"


def read_status(place: StudyPlace) -> StudyStatus:
    """Reads spec and records. InputError when one of them is unreadable."""
    spec, folder = place.read_spec(), place.records
    records = folder.records()
    objective = objective_of(spec)
    return StudyStatus(
        place=place,
        objective=objective,
        owner=folder_owner(folder.lock_path),
        records=len(records),
        failed=sum(not record.ok for record in records),
        left=_left(spec, records),
        best=rank(records, objective).choice,
        mlflow_is_stale=folder.stale_view_path.exists(),
    )


def report_of(place: StudyPlace) -> Report:
    """The report on a study, from its spec and records. InputError when one of them is unreadable."""
    spec = place.read_spec()
    greedy = spec.workload.temperature == 0
    verdicts = kept_sentences(place.records)
    return build_report(place.records, objective_of(spec), study=place.name, greedy=greedy, verdicts=verdicts)


def objective_of(spec: SweepSpec) -> Objective:
    """The spec's objective with its defaults filled in."""
    return Objective(metric=spec.objective.metric, concurrency=spec.objective_concurrency, goal=spec.objective.goal)


def _count(number: int | None) -> str:
    return "an unknown number" if number is None else str(number)


def _left(spec: SweepSpec, records: tuple[TrialRecord, ...]) -> int | None:
    try:
        plan = make_plan(spec)
    except InputError:
        return None
    repeats = spec.budget.repeats
    ledger = Ledger(records, repeats=repeats)
    legal = LegalSpace(plan.space, RuleBook(plan.context).resolve)
    open_configs = [config for config in legal.configs if ledger.is_open(config)]
    fixed = fixed_trials(plan, legal, repeats=spec.budget.baselines, expected_trials=legal.size * repeats)
    left_fixed = len(open_tasks(fixed, records))
    return sum(repeats - ledger.launches(config) for config in open_configs) + left_fixed


def _best_json(best: RankedSetting) -> dict[str, Any]:
    setting: MeasuredSetting = best.setting
    triple, layout = setting.effective.triple, setting.effective.layout
    return {
        "trial_ids": list(setting.trial_ids),
        "layout": None if layout is None else list(layout),
        "num_steps": triple and triple.num_steps,
        "eagle_topk": triple and triple.eagle_topk,
        "num_draft_tokens": triple and triple.num_draft_tokens,
        "tp_size": setting.effective.tp_size,
        "flags": dict(setting.effective.flags),
        "value": None if best.value is None else best.value.value,
        "accept_length": None if best.accept_length is None else best.accept_length.value,
    }
