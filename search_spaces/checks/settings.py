"""How the pair is to be served: the triple, backends and parallelism, by the rules of the SGLang version."""

from __future__ import annotations

from search_spaces.checks.context import CheckContext, Finding, error, info, warning
from search_spaces.config import EngineConfig, FlagValue, Setting
from search_spaces.dialects import find_dialect
from search_spaces.sglang_rules import Adjustment, Illegal, Legal, RuleContext, resolve_setting

TRIPLE_FLAGS = {
    "speculative_num_steps": "num_steps",
    "speculative_eagle_topk": "eagle_topk",
    "speculative_num_draft_tokens": "num_draft_tokens",
}


def effective(context: CheckContext) -> EngineConfig | None:
    """What the server would run, None when it would not start or the target class is unknown."""
    outcome = _resolve(context)
    return outcome.effective if isinstance(outcome, Legal) else None


def _resolve(context: CheckContext) -> Legal | Illegal | None:
    if find_dialect(context.target.architecture, context.sglang_version) is None:
        return None
    triple: dict[str, int | None] = dict.fromkeys(TRIPLE_FLAGS.values())
    others: dict[str, FlagValue] = {}
    for name, value in context.flags.items():
        if name in TRIPLE_FLAGS:
            triple[TRIPLE_FLAGS[name]] = int(value)
        else:
            others[name] = value
    setting = Setting(
        layout="shipped",
        num_steps=triple["num_steps"],
        eagle_topk=triple["eagle_topk"],
        num_draft_tokens=triple["num_draft_tokens"],
        tp_size=context.tp_size,
        flags=tuple(sorted(others.items())),
    )
    rules = RuleContext(
        target=context.target, draft=context.draft, sglang_version=context.sglang_version, args=context.flags
    )
    return resolve_setting(setting, rules)


def speculation(context: CheckContext) -> list[Finding]:
    """Legality of the triple and of the flags that limit it, and what SGLang changes silently."""
    findings = _algorithm(context)
    outcome = _resolve(context)
    if isinstance(outcome, Illegal) and not context.capture.problems:
        id = outcome.rule.replace("_", "-")
        findings.append(error(id, outcome.message, _asked(context), "ask for a setting that SGLang can run"))
    elif isinstance(outcome, Legal):
        findings += [_adjusted(change, context) for change in outcome.adjustments]
    if not context.flags.get("max_running_requests"):
        findings.append(
            info(
                "running-requests-capped",
                "max_running_requests is unset: SGLang caps it at 48 with speculation, not without",
                "srt/arg_groups/speculative_hook.py",
                "set --max-running-requests on both servers when comparing with a baseline",
            )
        )
    return findings


def _adjusted(change: Adjustment, context: CheckContext) -> Finding:
    """What SGLang runs instead of what was asked; where nothing was asked, that is only worth knowing."""
    id = change.rule.replace("_", "-")
    if not any(name in context.flags for name in TRIPLE_FLAGS):
        return info(id, change.message, _asked(context))
    return warning(id, change.message, _asked(context), "ask for what will run, and report results under it")


def _algorithm(context: CheckContext) -> list[Finding]:
    algorithm = context.flags.get("speculative_algorithm")
    findings = []
    if algorithm is not None and algorithm != "EAGLE3":
        findings.append(
            error(
                "algorithm",
                f"speculative_algorithm {algorithm} captures no taps; an EAGLE-3 draft needs EAGLE3",
                f"speculative_algorithm={algorithm}",
                "set --speculative-algorithm EAGLE3",
            )
        )
    if context.flags.get("speculative_token_map"):
        findings.append(
            info(
                "token-map-ignored",
                "speculative_token_map is ignored with EAGLE3: the draft has its own d2t",
                f"speculative_token_map={context.flags['speculative_token_map']}",
            )
        )
    return findings


def _asked(context: CheckContext) -> str:
    asked = dict(sorted(context.flags.items()))
    return f"SGLang {context.sglang_version}, tp {context.tp_size}, flags {asked}"


def pipeline_parallelism(context: CheckContext) -> list[Finding]:
    """Taps are captured on the last pipeline stage only, and SGLang refuses the combination."""
    stages = context.flags.get("pp_size", context.flags.get("pipeline_parallel_size", 1))
    if not isinstance(stages, int) or stages < 2:
        return []
    return [
        error(
            "pipeline-parallel",
            f"pp_size {stages}: only the last stage captures states, so taps of earlier stages never reach the draft;"
            " current SGLang refuses EAGLE3 with pipeline parallelism",
            "set_eagle3_layers_to_capture returns early unless the rank is the last stage;"
            " srt/arg_groups/validation_hook.py, check_pipeline_parallel_compat",
            "serve with pp_size 1 and more tensor parallelism",
        )
    ]
