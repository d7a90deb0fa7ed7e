"""Probes of a study's servers: which are probed, how they run in the pool, and where their results are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from actors.job import TrialJob, TrialOutcome
from actors.load.workload import Workload
from actors.probing import probe_tokens
from results.feed import FeedReport, SlotMatch, match_feed
from results.probed_feed import ProbedFeed
from results.store import PROBES_FOLDER, StudyFolder
from search_spaces.config import EngineConfig, Triple
from search_spaces.model_facts import TargetFacts
from search_spaces.rulings import Illegal, RuleContext
from search_spaces.sglang_rules import resolve_setting
from sweeps.account import OpenAccount
from sweeps.interrupts import StopRequest
from sweeps.isolation_ends import setting_of_config
from sweeps.seams import WAIT_S, Pool

SMALLEST = Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2)


@dataclass(frozen=True, kw_only=True)
class ProbePlan:
    """One layout to probe at the served TP size, beside tp 1 where that is legal: there nothing is split."""

    served: EngineConfig
    alone: EngineConfig | None

    @property
    def configs(self) -> tuple[EngineConfig, ...]:
        return tuple(dict.fromkeys(config for config in (self.alone, self.served) if config is not None))


def plan_probe(config: EngineConfig, context: RuleContext) -> ProbePlan:
    """Probe `config`'s layout at its TP size and at tp 1, with the smallest triple: a draft is fed a prompt's states
    before it proposes anything, so one probe serves every triple."""
    small = replace(config, triple=SMALLEST)
    served = small if _is_legal(small, context) else config
    alone = replace(served, tp_size=1)
    return ProbePlan(served=served, alone=alone if _is_legal(alone, context) else None)


def _is_legal(config: EngineConfig, context: RuleContext) -> bool:
    return not isinstance(resolve_setting(setting_of_config(config), context), Illegal)


def run_probes(
    plans: Sequence[ProbePlan],
    *,
    pool: Pool,
    workload: Workload,
    target: TargetFacts,
    stop: StopRequest,
    keep: Callable[[ProbedFeed], None],
    account: OpenAccount,
) -> tuple[ProbedFeed, ...]:
    """Probe every configuration once and match what was fed. Failures are results.

    Every plan's are kept as soon as its last probe ends. Told to stop, or where the account's budget is spent, those of
    the plans that are whole are returned.
    """
    configs = list(dict.fromkeys(config for plan in plans for config in plan.configs))
    # corners end with the largest TP size, whose server may still run
    configs.sort(key=lambda config: -config.tp_size)
    tokens = probe_tokens(target.num_layers, target.hidden_size)
    outcomes: dict[EngineConfig, TrialOutcome] = {}
    waiting, running = list(configs), dict[str, EngineConfig]()
    left, found, launched = list(plans), list[ProbedFeed](), 0
    while (waiting or running) and not stop.requested:
        while waiting and account.may_launch(launched + len(running)):
            job = TrialJob(
                trial_id=f"probe-{waiting[0].identity[:8]}", config=waiting[0], workload=workload, probe_tokens=tokens
            )
            if not pool.try_start(job):
                break
            running[job.trial_id] = waiting.pop(0)
        if not running and not account.may_launch(launched):
            break
        for outcome in pool.wait(WAIT_S):
            outcomes[running.pop(outcome.trial_id)] = outcome
            launched += 1 if outcome.server_starts is None else outcome.server_starts
        for plan in [plan for plan in left if all(config in outcomes for config in plan.configs)]:
            left.remove(plan)
            for feed in _match(plan, outcomes):
                keep(feed)
                found.append(feed)
        account.beat()
    return tuple(found)


def _match(plan: ProbePlan, outcomes: dict[EngineConfig, TrialOutcome]) -> list[ProbedFeed]:
    """Match against tp 1's taps, else against the server's own."""
    alone = None if plan.alone is None else outcomes[plan.alone]
    found = []
    for config in plan.configs:
        outcome = outcomes[config]
        if outcome.failure is not None:
            found.append(ProbedFeed(config=config, report=None, problem=outcome.failure.message))
            continue
        reference = alone.feeds[0] if alone is not None and alone.feeds else outcome.feeds[0]
        try:
            report = match_feed(outcome.feeds, reference, len(config.layout or ()))
        except ValueError as problem:
            found.append(ProbedFeed(config=config, report=None, problem=str(problem)))
        else:
            own = reference is outcome.feeds[0] and config.tp_size > 1
            found.append(ProbedFeed(config=config, report=report, own_taps=own))
    return found


def save_probe(folder: StudyFolder, feed: ProbedFeed, key: str) -> None:
    """Keep one probe in the study's folder. `key` names what was probed beside the configuration (the prompts)."""
    path = folder.path / PROBES_FOLDER
    path.mkdir(parents=True, exist_ok=True)
    content = {"key": key, **feed.to_json()}
    folder.write_file(path / f"{feed.config.identity}.json", json.dumps(content, indent=1) + "\n")


def kept_probe(folder: StudyFolder, config: EngineConfig, key: str) -> ProbedFeed | None:
    """An earlier, successful probe of the same configuration with the same prompts; None without one."""
    try:
        content: dict[str, Any] = json.loads((folder.path / PROBES_FOLDER / f"{config.identity}.json").read_bytes())
        if content["key"] != key or content["problem"] is not None:
            return None
        return ProbedFeed(config=config, report=_report(content), own_taps=content["own_taps"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _report(content: dict[str, Any]) -> FeedReport:
    matches = tuple(
        SlotMatch(
            slot=row["slot"] - 1,
            rank=row["rank"],
            kind=row["kind"],
            tap=row["tap"],
            error=float("inf") if row["error"] is None else row["error"],
            next_error=float("inf") if row["next_error"] is None else row["next_error"],
        )
        for row in content["slots"]
    )
    ranks = len({match.rank for match in matches})
    return FeedReport(matches=matches, ranks=ranks, equal_ranks=content["equal_ranks"], tokens=content["tokens"])
