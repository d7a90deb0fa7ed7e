"""How the pair is to be served: the triple, backends and parallelism, by the rules of the SGLang version."""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.checks.context import CheckContext, Finding, error, info, warning
from search_spaces.config import EngineConfig, FlagValue, Setting, Triple
from search_spaces.engine_args import EngineArgs
from search_spaces.flag_rules import FlagChange, flag_changes
from search_spaces.sglang_rules import RuleBook, RuleContext

TRIPLE_FLAGS = {
    "speculative_num_steps": "num_steps",
    "speculative_eagle_topk": "eagle_topk",
    "speculative_num_draft_tokens": "num_draft_tokens",
}


@dataclass(frozen=True, kw_only=True)
class Served:
    """What the rules say of the setting, apart from its layout (the layout has checks of its own).

    Refusals are (rule, message); `triple` is None when the numbers are refused.
    """

    placement: tuple[str, str] | None
    refusal: tuple[str, str] | None
    triple: Triple | None
    triple_changes: tuple[tuple[str, str], ...]
    flags: tuple[tuple[str, FlagValue], ...]
    flag_changes: tuple[FlagChange, ...]


def serve(context: CheckContext) -> Served:
    """Apply the rules to the flags of a check."""
    asked: dict[str, int | None] = dict.fromkeys(TRIPLE_FLAGS.values())
    others: dict[str, FlagValue] = {}
    for name, value in context.flags.items():
        if name in TRIPLE_FLAGS:
            asked[TRIPLE_FLAGS[name]] = int(value)
        else:
            others[name] = value
    setting = Setting(
        layout="shipped",
        num_steps=asked["num_steps"],
        eagle_topk=asked["eagle_topk"],
        num_draft_tokens=asked["num_draft_tokens"],
        tp_size=context.tp_size,
        flags=tuple(sorted(others.items())),
    )
    rules = RuleBook(
        RuleContext(target=context.target, draft=context.draft, sglang_version=context.sglang_version, args=others)
    )
    ruling = rules.triple(setting)
    triple: Triple | None = None
    changes: tuple[FlagChange, ...] = ()
    if ruling.numbers is not None and ruling.refusal is None:
        steps, topk, tokens = ruling.numbers
        triple = Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)
        changes = flag_changes(EngineArgs(others), topk, context.sglang_version)
    return Served(
        placement=rules.placement(setting),
        refusal=ruling.refusal,
        triple=triple,
        triple_changes=ruling.changes,
        flags=tuple(sorted({**others, **{change.flag: change.value for change in changes}}.items())),
        flag_changes=changes,
    )


def effective(context: CheckContext) -> EngineConfig | None:
    """What the server would run; None when it would not start with these taps, numbers or parallelism."""
    served = serve(context)
    if served.triple is None or served.placement is not None or context.capture.problems:
        return None
    return EngineConfig(layout=context.capture.taps, triple=served.triple, tp_size=context.tp_size, flags=served.flags)


def speculation(context: CheckContext) -> list[Finding]:
    """Legality of the triple, of parallelism and of the flags that limit them; what SGLang changes silently."""
    served = serve(context)
    findings = _algorithm(context)
    for refusal in (served.placement, served.refusal):
        if refusal is not None:
            findings.append(_refused(refusal, context))
    asked = any(name in context.flags for name in TRIPLE_FLAGS)
    for rule, message in served.triple_changes:
        if asked:
            mend = f"ask for {served.triple or 'what will run'}, and report results under it"
            findings.append(warning(_id(rule), message, _asked(context), mend))
        else:
            findings.append(info(_id(rule), message, _asked(context)))
    for change in served.flag_changes:
        unset = change.flag not in context.flags
        build = info if unset else warning
        mend = f"set {change.flag} yourself, on the baseline as well" if unset else f"set {change.flag}={change.value}"
        findings.append(build(_id(change.adjustment.rule), change.adjustment.message, _asked(context), mend))
    return findings


def _id(rule: str) -> str:
    return rule.replace("_", "-")


_AT_START = "SGLang refuses to start"
_CONSEQUENCES: dict[str, tuple[str, str]] = {
    "tree_pool": (
        "SGLang dies at the first draft (torch.topk: selected index k out of range)",
        "ask for num_draft_tokens of at most 1 + the pool, or for more steps or a larger topk",
    ),
    "tokens_below_steps": (
        "SGLang dies at the first verify step",
        "raise num_draft_tokens to num_steps + 1 or more, or take fewer steps",
    ),
    "all_or_none": (_AT_START, "set num_steps, eagle_topk and num_draft_tokens, or leave all three out"),
    "backend_topk": (_AT_START, "set speculative_eagle_topk=1, or take another attention backend"),
    "page_size_topk": (_AT_START, "set page_size=1, eagle_topk 1, or one of these backends"),
    "backend_speculation": (_AT_START, "set attention_backend, or speculative_draft_attention_backend, to a legal one"),
    "rejection_sampling_topk": (_AT_START, "set speculative_eagle_topk=1, or leave rejection sampling off"),
    "pipeline_parallel": (
        "SGLang refuses to start: only the last stage captures states, so taps of earlier stages would never reach the"
        " draft",
        "serve with pp_size 1 and more tensor parallelism",
    ),
    "tp_divides_heads": (
        "SGLang dies while it builds the model",
        "choose a tp that divides the heads of target and draft, or split the attention by enable_dp_attention",
    ),
    "dp_divides_tp": (_AT_START, "make tp_size a multiple of dp_size"),
    "standalone_dp_attention": (_AT_START, "leave enable_dp_attention off"),
}
"""By rule: what SGLang does with such a setting, and what to ask for instead."""


def _refused(refusal: tuple[str, str], context: CheckContext) -> Finding:
    rule, message = refusal
    does, mend = _CONSEQUENCES.get(rule, (_AT_START, "ask for a setting that SGLang can run"))
    return error(_id(rule), f"{message}: {does}", _asked(context), mend)


def _algorithm(context: CheckContext) -> list[Finding]:
    algorithm = context.flags.get("speculative_algorithm")
    findings = []
    if algorithm is not None and str(algorithm).upper() != "EAGLE3":
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
    return f"SGLang {context.sglang_version}, tp {context.tp_size}, flags {dict(sorted(context.flags.items()))}"
