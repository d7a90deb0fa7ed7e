"""`specsweep trace`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.commands.options import AsJson, Study, print_json, whoever_reads

if TYPE_CHECKING:
    from sweeps.trace_plans import PlannedTrace
    from sweeps.tracing import TraceRun

FAILED, INTERRUPTED = 1, 130


def trace(
    study: Study,
    *,
    layout: Annotated[
        list[str] | None,
        typer.Option(help="Taps such as 0,3,7, `default` or `shipped`; by default the space's. May be repeated."),
    ] = None,
    topk: Annotated[
        list[int] | None, typer.Option(min=1, help="By default every topk of the space. May be repeated.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Draft steps; by default the space's greatest at each topk.")
    ] = None,
    tp_size: Annotated[
        int | None, typer.Option("--tp", min=1, help="The TP size; by default the space's smallest.")
    ] = None,
    prompts: Annotated[
        int | None, typer.Option(min=1, help="Trace the first prompts of the workload only; by default all.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be traced, and trace nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Log what the draft proposes at every position of the workload's answers, on one server.

    From one trace of a layout and topk follows the accept length of every setting below it, exactly for these prompts,
    without measuring: see `specsweep surface`. One server is switched through all layouts and topks. What is traced
    already is not traced again; interrupted, the same command goes on there.

    Example: specsweep trace demo --topk 4 --steps 6
    """
    from sweeps.driver_log import driver_log
    from sweeps.home import find_study, home_folder
    from sweeps.progress import open_progress
    from sweeps.trace_choice import TraceChoice
    from sweeps.tracing_study import plan_json, plan_study_traces, trace_json, trace_study

    place = find_study(study, home_folder())
    spec = place.read_spec()
    choice = TraceChoice(topks=tuple(dict.fromkeys(topk or ())), num_steps=steps, tp_size=tp_size, prompts=prompts)
    found = plan_study_traces(spec, place, choice, layout or ())
    if dry_run:
        if as_json:
            print_json(plan_json(place, found))
        else:
            typer.echo(_show_plan(found.plans))
        return
    progress = open_progress(sys.stderr if as_json else sys.stdout)
    try:
        with driver_log(place.records):
            run = trace_study(spec, place, found, progress.say)
    finally:
        progress.close()
    with whoever_reads():
        if as_json:
            print_json(trace_json(place, run))
        else:
            typer.echo(_show_run(run, place.name))
    if run.stopped:
        raise typer.Exit(INTERRUPTED)
    if run.failures:
        raise typer.Exit(FAILED)


def _show_plan(plans: Sequence[PlannedTrace]) -> str:
    lines = [
        f"  {plan.words}: {len(plan.left)} prompts to trace, {plan.done} done"
        + (f", {len(plan.untraceable)} cannot be traced" if plan.untraceable else "")
        for plan in plans
    ]
    left = sum(len(plan.left) for plan in plans)
    return "\n".join([f"{len(plans)} traces, {left} prompts to trace" + (", one server" if left else ""), *lines])


def _show_run(run: TraceRun, study: str) -> str:
    lines = []
    for trace in run.traces:
        lines.append(f"  {trace.plan.words}: {trace.prompts} prompts")
        if trace.failure is not None:
            lines.append(f"    failed: {trace.failure.kind} in {trace.failure.phase}: {trace.failure.message}")
            lines += [f"      {line}" for line in trace.failure.log_tail.strip().splitlines()[-5:]]
        lines += [f"    {problem}" for problem in trace.problems]
    loads = f"{run.weight_loads} weight load" + ("" if run.weight_loads == 1 else "s")
    lines.append(f"{loads}, {run.elapsed_s:.0f} s")
    if run.stopped:
        lines.append(f"Stopped; nothing is lost: specsweep trace {study}")
    elif any(trace.prompts for trace in run.traces):
        lines.append(f"What follows for every setting: specsweep surface {study}")
    return "\n".join(lines)
