"""A plan as people read it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from results.drift import MIN_POINTS
from search_spaces.config import layout_label
from search_spaces.plan import SpacePlan
from sweeps.budget import Budget
from sweeps.pace import Pace
from sweeps.plan_budget import Cut, budget_cuts
from sweeps.plan_time import NO_LIMIT, PlannedTime, plan_time
from sweeps.planning import SweepPlan
from sweeps.progress import show_duration
from sweeps.study_extras import StudyExtras
from sweeps.text_table import format_table

ROWS_SHOWN = 12
NOT_REACHED = "the budget does not go so far"


def show_plan(plan: SweepPlan, pace: Pace, extras: StudyExtras | None = None, budget: Budget = NO_LIMIT) -> str:
    """The summary, then refusals by rule, changes, layouts and notes; long lists are cut and say so."""
    servers = plan.servers
    parts = [_summary(plan, pace, extras or StudyExtras(), budget)]
    if servers.illegal:
        refused = servers.requested - servers.legal
        parts.append(f"Illegal: {_count(refused, 'setting')}\n{_illegal(servers)}")
    if servers.adjusted:
        parts.append(f"Changed by SGLang\n{_adjusted(servers)}")
    parts.append(f"Layouts\n{_layouts(servers)}")
    if plan.findings:
        lines = [f"  {finding.message}; {finding.mend}" for finding in plan.findings]
        parts.append("Errors in the pair (specsweep check has more)\n" + "\n".join(lines))
    if servers.notes:
        parts.append("Notes\n" + "\n".join(f"  {note.message}" for note in servers.notes))
    return "\n\n".join(parts)


def _summary(plan: SweepPlan, pace: Pace, extras: StudyExtras, budget: Budget) -> str:
    servers = plan.servers
    parts = [_count(servers.effective, "server")]
    if servers.repeats > 1:
        parts[0] += f" x {servers.repeats} repeats"
    if plan.suspect_is_extra:
        parts.append("the suspect")
    parts.append(_count(plan.baselines, "baseline"))
    if plan.baseline_launches > 1:
        parts[-1] += f" x {plan.baseline_launches}"
    alone = pace.slots is None or pace.max_parallel == 1
    how = "one after another" if alone else f"on {_count(pace.slots or 1, 'slot')}"
    price = f"{pace.seconds_per_launch:g} s a launch"
    if pace.switches:
        price += f", {pace.seconds_per_switch:g} s a switch"
    time = plan_time(plan, pace, extras, budget)
    of = "" if time.trials == plan.launches else f"of {plan.launches}: "
    rows = [
        ("settings asked", servers.requested, ""),
        ("legal", servers.legal, ""),
        ("distinct servers", servers.effective, "settings that end up as one server are launched once"),
        ("launches", time.trials, of + " + ".join(parts)),
    ]
    if plan.baselines:
        rows.append(("baselines", time.baselines, _drift(plan, time.baselines)))
    if extras.check:
        why = "one setting is also launched afresh, to see whether switching changes anything"
        rows.append(("check", time.check, why if time.check else NOT_REACHED))
    if extras.traces or extras.problem:
        rows.append(("traces", time.traced, _traces(extras, time.traced)))
    if pace.switches or extras.traces:
        rows.append(("weights loaded", time.loads, _loads(time)))
    lines = [f"Study {plan.study}, by the rules of SGLang {plan.context.sglang_version}"]
    lines += [f"  {name:<18}{number:>8}  {comment}".rstrip() for name, number, comment in rows]
    cuts = [_cut(cut, plan.servers.repeats) for cut in budget_cuts(plan, pace, extras, budget)]
    if cuts:
        lines.append(f"  {'budget':<18}{'; '.join(cuts)}")
    lines.append(f"  {'time':<18}about {show_duration(time.seconds)} at {price}, {how}")
    return "\n".join(lines)


def _cut(cut: Cut, repeats: int) -> str:
    """How much of what a limit leaves."""
    if cut.limit == "wall_time_s":
        return (
            f"{show_duration(cut.within)} of about {show_duration(cut.of)}: budget.wall_time_s, "
            "which the numbers above do not allow for"
        )
    what = "server starts" if cut.limit == "launches" else "settings" if repeats == 1 else "trials"
    return f"{cut.within:.0f} of {cut.of:.0f} {what}: budget.{cut.limit}"


def _drift(plan: SweepPlan, within: int) -> str:
    """What so many baselines within the budget are good for."""
    if not within:
        return NOT_REACHED
    if within >= MIN_POINTS * plan.baselines:
        return "each from the study's start to its end, which tests for drift"
    if plan.baseline_launches >= MIN_POINTS:
        return f"of {plan.baselines * plan.baseline_launches}: too few within the budget to test for drift everywhere"
    return f"drift is not tested (budget.baselines: {MIN_POINTS} would)"


def _traces(extras: StudyExtras, within: int) -> str:
    if extras.problem is not None:
        return f"{extras.problem}; the search falls back to TPE"
    if not within:
        return NOT_REACHED
    prompts = "every prompt" if extras.prompts is None else _count(extras.prompts, "prompt")
    of = "" if within == len(extras.traces) else f"of {len(extras.traces)}: "
    return f"{of}one per layout and topk, {prompts} each, before the search at the smallest TP size"


def _loads(time: PlannedTime) -> str:
    """How the number comes about."""
    parts = [(time.baselines, "for baselines"), (time.settings, "for settings"), (time.check, "for the check")]
    parts += [(time.traces, "to trace"), (time.confirmations, "to confirm the winner")]
    text = " + ".join(f"{number} {what}" for number, what in parts if number)
    switched = f"; {_count(time.switched, 'trial')} on a running server" if time.switched else ""
    return text + switched


def _illegal(servers: SpacePlan) -> str:
    counts: dict[str, int] = defaultdict(int)
    examples: dict[str, str] = {}
    for row in servers.illegal:
        counts[row.rule] += row.settings
        numbers = _triple((row.num_steps, row.eagle_topk, row.num_draft_tokens))
        where = f" layout {row.layout}" if row.layout else ""
        examples.setdefault(row.rule, f"{numbers} tp {row.tp_size}{where}: {row.message}")
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return format_table(("rule", "settings", "for example"), [(rule, count, examples[rule]) for rule, count in ranked])


def _adjusted(servers: SpacePlan) -> str:
    shown = servers.adjusted[:ROWS_SHOWN]
    rows = [(_triple(row.requested), _triple(row.effective), row.settings, row.rule) for row in shown]
    table = format_table(("asked", "runs as", "settings", "rule"), rows)
    more = len(servers.adjusted) - len(shown)
    return table + (f"\n  and {more} more (--json has all)" if more else "")


def _layouts(servers: SpacePlan) -> str:
    return format_table(("layout", "taps", "ids in the draft's config", ""), list(_layout_rows(servers)))


def _layout_rows(servers: SpacePlan) -> Iterator[tuple[str | None, ...]]:
    first: dict[tuple[int, ...], str] = {}
    for row in servers.layouts:
        taps = None if row.taps is None else layout_label(row.taps)
        ids = "none" if row.ids is None else str(list(row.ids))
        comment = ""
        if row.refusal is not None:
            comment = row.refusal[1]
        elif row.taps is not None and first.setdefault(row.taps, row.name) != row.name:
            comment = f"the same as {first[row.taps]}"
        yield row.name, taps, ids, comment


def _triple(numbers: tuple[int | None, int | None, int | None]) -> str:
    return "(" + ",".join("null" if number is None else str(number) for number in numbers) + ")"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
