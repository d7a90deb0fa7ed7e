"""From a spec to its plan: the models' facts, the rules' context, the space. Reads files, starts nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from actors.cluster_address import ClusterAddress
from actors.engines.devices import has_gpu
from results.drift import MIN_POINTS
from search_spaces.checkpoints import read_draft, read_target
from search_spaces.config import EngineConfig, Setting
from search_spaces.errors import InputError
from search_spaces.findings import Finding, check_pair
from search_spaces.plan import SpacePlan, plan_space
from search_spaces.rulings import Illegal, Legal, RuleContext
from search_spaces.sglang_rules import resolve_setting
from search_spaces.space import SearchSpace
from search_spaces.versions import READ_VERSION
from sweeps.budget import Budget, Spent, trials_left
from sweeps.dimensions import contains
from sweeps.spec_schema import BudgetSpec, SweepSpec

RULES_MADE_FOR = READ_VERSION
"""The SGLang version assumed when neither the spec nor an installed SGLang says which one will run."""

TRIALS_PER_BASELINE = 8
"""From how many trials for each baseline `budget.baselines: auto` launches it three times: the two more are then
at most a quarter of the study, which lasts long enough for the machine to change."""

MISFITS: frozenset[str] = frozenset(
    {
        "d2t-length",
        "d2t-out-of-range",
        "draft-class",
        "draft-layers",
        "draft-vocab-size-missing",
        "draft-vocab-too-large",
        "embedding-missing",
        "fc-missing",
        "hidden-size",
        "output-layer-missing",
        "output-layer-rows",
        "target-hidden-size",
    }
)
"""Findings of `check` that no setting mends: the draft cannot be loaded, or would run on random weights."""


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """What a sweep would run. `suspect` is None when the spec names none; it may be one of the space's servers.

    Each baseline is launched `baseline_launches` times, and the winner `confirmations` times more.

    `findings` are the errors that a static check of the pair reports; none of them keeps a server from starting.
    """

    study: str
    context: RuleContext
    space: SearchSpace
    servers: SpacePlan
    suspect_setting: Setting | None
    suspect: Legal | None
    findings: tuple[Finding, ...]
    baseline_launches: int = 1
    confirmations: int = 0

    @property
    def extra_baselines(self) -> tuple[EngineConfig, ...]:
        """The suspect's baseline when no server of the space has its TP size."""
        if self.suspect is None:
            return ()
        size = self.suspect.effective.tp_size
        if any(baseline.tp_size == size for baseline in self.servers.baselines):
            return ()
        return (EngineConfig(layout=None, triple=None, tp_size=size),)

    @property
    def baselines(self) -> int:
        """How many baselines there are: one for each TP size."""
        return len(self.servers.baselines) + len(self.extra_baselines)

    @property
    def suspect_is_extra(self) -> bool:
        """True when the suspect is a server that the space does not have."""
        effective = self.suspect and self.suspect.effective
        return effective is not None and all(group.effective != effective for group in self.servers.groups)

    @property
    def suspect_trials(self) -> int:
        """Trials of a suspect that the search cannot choose as it was asked for; no `budget.trials` counts them."""
        if self.suspect_setting is None or contains(self.space, self.suspect_setting):
            return 0
        return self.servers.repeats if self.suspect_is_extra else 1

    @property
    def possible_trials(self) -> int:
        """Trials of the search: every distinct server `repeats` times."""
        return self.servers.effective * self.servers.repeats

    def expected_trials(self, budget: Budget, *, beside: int = 0, on_running: int = 0) -> int:
        """Trials that the search makes within a budget that leaves room for every baseline; at least one.

        `beside` are launches for something else than trials. A trial is a launch, but for those `on_running` servers.
        """
        others = self.baselines * self.baseline_launches + self.suspect_trials + beside
        spent = Spent(trials=0, launches=others - on_running, elapsed_s=0)
        return max(1, trials_left(budget, spent, self.possible_trials))

    @property
    def launches(self) -> int:
        """Trials without retries and confirmations: every distinct server `repeats` times, and the baselines.

        Each is a launch unless a running server can be switched to it.
        """
        extra = self.servers.repeats if self.suspect_is_extra else 0
        searched = self.servers.launches - len(self.servers.baselines)
        return searched + extra + self.baselines * self.baseline_launches

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values: the space's (schema 1), with the study, the SGLang version and the suspect."""
        content = self.servers.to_json()
        numbers = self.suspect and self.suspect.effective.triple
        content["study"] = self.study
        content["sglang_version"] = self.context.sglang_version
        content["launches"] = self.launches
        content["baselines"] = self.baselines
        content["baseline_launches"] = self.baseline_launches
        content["confirmations"] = self.confirmations
        content["suspect"] = self.suspect and {
            "layout": list(self.suspect.effective.layout or ()),
            "num_steps": numbers and numbers.num_steps,
            "eagle_topk": numbers and numbers.eagle_topk,
            "num_draft_tokens": numbers and numbers.num_draft_tokens,
            "tp_size": self.suspect.effective.tp_size,
            "in_space": not self.suspect_is_extra,
        }
        content["findings"] = [finding.to_json() for finding in self.findings]
        return content


def make_plan(spec: SweepSpec) -> SweepPlan:
    """Everything that would run, would not, or would collapse; legal or not.

    InputError when a model cannot be read, when the draft does not fit the target whatever the setting, when the
    suspect cannot run at all, or when servers are to be forked beside a GPU of this machine that they would take.
    """
    _check_start_method(spec)
    context, space = rule_context(spec), search_space(spec)
    suspect = spec.suspect.to_setting() if spec.suspect is not None else None
    findings = _check_fit(context)
    servers = plan_space(space, context, repeats=spec.budget.repeats)
    runs_already = spec.engine.kind == "endpoint"
    plan = SweepPlan(
        study=spec.study,
        context=context,
        space=space,
        servers=replace(servers, baselines=()) if runs_already else servers,
        suspect_setting=suspect,
        suspect=resolve_suspect(suspect, context),
        findings=findings,
        confirmations=0 if runs_already else spec.budget.confirmations,
    )
    return replace(plan, baseline_launches=_baseline_launches(plan, spec.budget))


def _check_start_method(spec: SweepSpec) -> None:
    engine = spec.engine
    ours = ClusterAddress(address=spec.cluster.address).resolve(os.environ) is None
    if engine.start_method == "fork" and engine.device == "auto" and ours and has_gpu():
        raise InputError(
            "engine.start_method: 'fork' works on the CPU only and this machine has a GPU, which device auto takes; "
            "write engine.device: cpu, or start_method: spawn"
        )


def _baseline_launches(plan: SweepPlan, budget: BudgetSpec) -> int:
    """How often each baseline is launched: what the budget says; `auto` tests for drift where that costs little.

    As if every trial had a server of its own: whether servers are switched may not be known before the study runs.
    """
    if budget.baselines != "auto":
        return budget.baselines
    trials = replace(plan, baseline_launches=MIN_POINTS).expected_trials(budget.limits)
    return MIN_POINTS if trials >= TRIALS_PER_BASELINE * plan.baselines else 1


def rule_context(spec: SweepSpec) -> RuleContext:
    """What the rules need to know beside the space: both models, the SGLang version, the fixed flags."""
    return RuleContext(
        target=read_target(spec.target),
        draft=read_draft(spec.draft),
        sglang_version=sglang_version(spec),
        args=spec.engine.args,
    )


def search_space(spec: SweepSpec) -> SearchSpace:
    """The spec's space as the planner takes it."""
    space = spec.space
    return SearchSpace(
        layout=space.layout_labels,
        num_steps=space.num_steps,
        eagle_topk=space.eagle_topk,
        num_draft_tokens=space.num_draft_tokens,
        tp_size=space.tp_size,
        flags=tuple(sorted(space.flags.items())),
    )


def sglang_version(spec: SweepSpec) -> str:
    """The spec's version, else the one installed beside specsweep, else the one the rules were made for.

    Another interpreter (`engine.python`) is not asked: planning starts no process.
    """
    if spec.engine.sglang_version:
        return spec.engine.sglang_version
    if spec.engine.python is None:
        try:
            return metadata.version("sglang")
        except metadata.PackageNotFoundError:
            pass
    return RULES_MADE_FOR


def _check_fit(context: RuleContext) -> tuple[Finding, ...]:
    report = check_pair(
        context.target,
        context.draft,
        tp_size=1,
        sglang_version=context.sglang_version,
        flags={name: value for name, value in context.args.items() if isinstance(value, bool | int | float | str)},
        environment={},
    )
    errors = tuple(finding for finding in report.findings if finding.severity == "error")
    for finding in errors:
        if finding.id in MISFITS:
            raise InputError(f"draft: does not fit the target: {finding.message}; {finding.mend}")
    return errors


def resolve_suspect(setting: Setting | None, context: RuleContext) -> Legal | None:
    """What a suspect is when it runs. InputError when it cannot."""
    if setting is None:
        return None
    ruling = resolve_setting(setting, context)
    if isinstance(ruling, Illegal):
        raise InputError(f"suspect: cannot run: {ruling.message} ({ruling.rule})")
    return ruling
