"""Further flags that SGLang changes silently once speculation is on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from search_spaces.config import FlagValue
from search_spaces.engine_args import EngineArgs
from search_spaces.rulings import Adjustment
from search_spaces.versions import holds

RUNNING_CAP = 48
"""`max_running_requests` with speculation when the flag is absent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagRule:
    """SGLang gives `flag` another value. `change` returns (value, message), or None when it leaves the flag alone."""

    name: str
    flag: str
    source: str
    change: Callable[[EngineArgs, int], tuple[FlagValue, str] | None]
    since: str | None = None
    until: str | None = None


def _running_cap(args: EngineArgs, topk: int) -> tuple[FlagValue, str] | None:
    if args.text("max_running_requests") is not None:
        return None
    return RUNNING_CAP, (
        f"max_running_requests is unset and becomes {RUNNING_CAP} with speculation: at more than {RUNNING_CAP} "
        "concurrent requests a baseline without it is not comparable"
    )


def _mixed_chunk(args: EngineArgs, topk: int) -> tuple[FlagValue, str] | None:
    if not args.on("enable_mixed_chunk"):
        return None
    return False, "enable_mixed_chunk is turned off with speculation"


def _mixed_chunk_standalone(args: EngineArgs, topk: int) -> tuple[FlagValue, str] | None:
    return _mixed_chunk(args, topk) if args.algorithm not in ("EAGLE", "EAGLE3") else None


def _forced_page(args: EngineArgs, topk: int) -> tuple[FlagValue, str] | None:
    asked = args.number("page_size", 1)
    if args.page_size == asked:
        return None
    return args.page_size, f"page_size {asked} becomes {args.page_size} under {', '.join(sorted(args.backends))}"


def _adaptive_off(args: EngineArgs, topk: int) -> tuple[FlagValue, str] | None:
    if not args.on("speculative_adaptive"):
        return None
    if topk != 1:
        return False, f"speculative_adaptive is turned off with eagle_topk {topk}"
    if args.attention_dp_size > 1:
        return False, "speculative_adaptive is turned off with data-parallel attention"
    return None


def _overlap_on_cpu(args: EngineArgs, topk: int) -> tuple[FlagValue, str] | None:
    if args.text("device") != "cpu" or args.on("disable_overlap_schedule"):
        return None
    return True, "disable_overlap_schedule becomes true: overlap is not implemented for speculation on a CPU"


_HOOK = "arg_groups/speculative_hook.py"

FLAG_RULES: tuple[FlagRule, ...] = (
    FlagRule(
        name="running_requests_cap",
        flag="max_running_requests",
        source=f"{_HOOK}, _handle_eagle_family",
        change=_running_cap,
    ),
    FlagRule(
        name="mixed_chunk_off",
        flag="enable_mixed_chunk",
        source="server_args.py, __post_init__, later arg_groups/speculative_hook.py",
        change=_mixed_chunk,
        until="0.5.20",
    ),
    FlagRule(
        name="mixed_chunk_off",
        flag="enable_mixed_chunk",
        source=f"{_HOOK}, _handle_eagle_family; speculative/spec_info.py, supports_mixed_chunk",
        change=_mixed_chunk_standalone,
        since="0.5.20",
    ),
    FlagRule(
        name="page_size_forced",
        flag="page_size",
        source="arg_groups/overrides.py, _mla_backend_page_constraints",
        change=_forced_page,
    ),
    FlagRule(
        name="adaptive_off",
        flag="speculative_adaptive",
        source="speculative/adaptive_spec_params.py, adaptive_unsupported_reason",
        change=_adaptive_off,
        since="0.5.13",
    ),
    FlagRule(
        name="overlap_off_on_cpu",
        flag="disable_overlap_schedule",
        source=f"{_HOOK}, _disable_overlap_schedule_for_cpu",
        change=_overlap_on_cpu,
        since="0.5.20",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagChange:
    """One flag's effective value, and why."""

    flag: str
    value: FlagValue
    adjustment: Adjustment


def flag_changes(args: EngineArgs, topk: int, sglang_version: str) -> tuple[FlagChange, ...]:
    """What SGLang changes in the flags of a launch with this topk."""
    changes = []
    for rule in FLAG_RULES:
        changed = rule.change(args, topk) if holds(sglang_version, rule.since, rule.until) else None
        if changed is not None:
            adjustment = Adjustment(rule=rule.name, message=changed[1])
            changes.append(FlagChange(flag=rule.flag, value=changed[0], adjustment=adjustment))
    return tuple(changes)
