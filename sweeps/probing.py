"""Probing a study's servers by themselves, without an isolation."""

from __future__ import annotations

from collections.abc import Sequence

from results.probed_feed import ProbedFeed, TrainedOn
from search_spaces.config import Setting
from search_spaces.errors import InputError
from search_spaces.rulings import Illegal
from search_spaces.sglang_rules import resolve_setting
from sweeps.account import Account
from sweeps.continuation import check_models
from sweeps.corner_trials import matched_workload
from sweeps.feed_probes import ProbePlan, plan_probe, run_probes, save_probe
from sweeps.groups import open_groups, stopping
from sweeps.home import StudyPlace
from sweeps.interrupts import stop_signals
from sweeps.isolation_ends import trained_on
from sweeps.lease import hold_folder
from sweeps.planning import SweepPlan, make_plan
from sweeps.spec_schema import SweepSpec
from sweeps.workloads import make_workload


def probe_study(
    spec: SweepSpec, place: StudyPlace, *, layouts: Sequence[str], tp_size: int | None, trained: str | None
) -> tuple[tuple[ProbedFeed, ...], TrainedOn | None] | None:
    """Probe every layout at tp 1 and at the served TP size, in groups of its own; None when a signal said stop.

    Results are kept in the study's folder as they come. InputError for a layout that cannot be served, and for models
    that are not the study's any more; EnvironmentProblem as for a sweep.
    """
    if spec.engine.kind != "sglang":
        raise InputError("probe: engine.kind: endpoint: only a server that specsweep starts can be probed")
    check_models(place, spec)
    sweep = make_plan(spec)
    plans = [plan_probe_of(sweep, layout, tp_size) for layout in layouts or (None,)]
    workload = matched_workload(make_workload(spec), spec.objective_concurrency)
    known = trained_on(trained, place.records.records(), workload.workload_id)
    folder = place.records
    with hold_folder(folder.lock_path):
        folder.open_for_write()
        servers = [config for plan in plans for config in plan.configs]
        with (
            open_groups(spec, sweep.context, place, servers) as pool,
            stop_signals() as stop,
            stopping(pool, stop),
            Account().open(folder) as account,
        ):
            feeds = run_probes(
                plans,
                pool=pool,
                workload=workload,
                target=sweep.context.target,
                stop=stop,
                keep=lambda feed: save_probe(folder, feed, workload.prompt_set_hash),
                account=account,
            )
            if stop.requested:
                return None
    return feeds, known


def plan_probe_of(sweep: SweepPlan, layout: str | None, tp_size: int | None) -> ProbePlan:
    """The probe of one layout (None: the suspect's, else the shipped one) with the smallest triple."""
    suspect = sweep.suspect_setting
    setting = Setting(
        layout=layout or (suspect.layout if suspect is not None else "shipped"),
        num_steps=1,
        eagle_topk=1,
        num_draft_tokens=2,
        tp_size=tp_size or (suspect.tp_size if suspect is not None else max(sweep.space.tp_size)),
        flags=suspect.flags if suspect is not None else (),
    )
    ruling = resolve_setting(setting, sweep.context)
    if isinstance(ruling, Illegal):
        raise InputError(f"probe: layout {setting.layout} at tp {setting.tp_size}: {ruling.message} ({ruling.rule})")
    return plan_probe(ruling.effective, sweep.context)
