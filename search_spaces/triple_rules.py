"""Rules on (num_steps, eagle_topk, num_draft_tokens) and on the flags that restrict it.

A table, applied in SGLang's own order: each rule looks at the numbers as the rules before it left them, and either
says nothing, refuses with a message, or replaces the numbers. Upstream paths are relative to `sglang/srt`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from search_spaces.engine_args import EngineArgs
from search_spaces.versions import holds

Numbers = tuple[int | None, int | None, int | None]
"""(num_steps, eagle_topk, num_draft_tokens) as asked so far; None is left to SGLang."""


@dataclass(frozen=True, slots=True)
class TripleCase:
    """What a rule on the triple may look at. `mla_draft` tells whether the draft's attention is latent (MLA)."""

    numbers: Numbers
    args: EngineArgs
    architecture: str
    mla_draft: bool = False

    @property
    def known(self) -> tuple[int, int, int]:
        """The three numbers, once `all_or_none` and `auto_triple` have passed."""
        steps, topk, tokens = self.numbers
        assert steps is not None
        assert topk is not None
        assert tokens is not None
        return steps, topk, tokens


@dataclass(frozen=True, slots=True)
class Change:
    """SGLang replaces the numbers."""

    numbers: Numbers
    message: str


Verdict = str | Change | None
"""A refusal's message, a change, or nothing to say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TripleRule:
    """One rule, true in releases `since` <= v < `until` (None: since before 0.5.9, and still)."""

    name: str
    source: str
    check: Callable[[TripleCase], Verdict]
    since: str | None = None
    until: str | None = None


def tree_pool(num_steps: int, topk: int) -> int:
    """How many candidates a draft tree offers: topk at the first step, topk * topk at each later one."""
    return topk + (num_steps - 1) * topk * topk


def auto_triple(architecture: str) -> tuple[int, int, int]:
    """What SGLang takes when none of the three numbers is given."""
    return (5, 4, 8) if architecture in FIVE_FOUR_EIGHT else (3, 1, 4)


FIVE_FOUR_EIGHT = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")
ADAPTIVE_STEPS = (0, 1, 3, 5, 7)
"""Union of the candidate steps in `DEFAULT_ADAPTIVE_CONFIG` (`speculative/adaptive_spec_params.py`)."""
DRAFT_BACKENDS = frozenset(
    {
        "aiter",
        "ascend",
        "cutedsl_mla",
        "dsa",
        "dsv4",
        "fa3",
        "fa4",
        "flashinfer",
        "flashmla",
        "hybrid_linear_attn",
        "intel_amx",
        "intel_xpu",
        "nsa",
        "triton",
        "trtllm_mha",
        "trtllm_mla",
    }
)
PAGED_TREE_BACKENDS = ("flashinfer", "fa3", "triton")
PAGED_TREE_BACKENDS_BEFORE = ("flashinfer", "fa3")


def _adaptive(case: TripleCase) -> Verdict:
    steps, topk, tokens = case.numbers
    if not case.args.on("speculative_adaptive") or topk not in (None, 1):
        return None
    if case.args.algorithm not in ("EAGLE", "EAGLE3") or case.args.attention_dp_size > 1:
        return None
    if case.args.text("speculative_adaptive_config") is not None:
        if steps is None:
            return "num_steps must be given when speculative_adaptive_config names a file that the rules do not read"
    else:
        steps = ADAPTIVE_STEPS[len(ADAPTIVE_STEPS) // 2] if steps is None else steps
        if steps not in ADAPTIVE_STEPS:
            return f"speculative_adaptive knows num_steps {', '.join(map(str, ADAPTIVE_STEPS[1:]))}, not {steps}"
    if (topk, tokens) == (1, steps + 1) and steps == case.numbers[0]:
        return None
    return Change((steps, 1, steps + 1), f"speculative_adaptive starts at ({steps},1,{steps + 1})")


def _chain_without_tokens(case: TripleCase) -> Verdict:
    steps, topk, tokens = case.numbers
    if steps is None or topk != 1 or tokens is not None:
        return None
    chain = (steps, 1, steps + 1)
    return Change(chain, f"num_draft_tokens is unset and becomes num_steps + 1 at eagle_topk 1: {_show(chain)}")


def _all_or_none(case: TripleCase) -> Verdict:
    if None not in case.numbers:
        return None
    names = ("num_steps", "eagle_topk", "num_draft_tokens")
    missing = [name for name, value in zip(names, case.numbers, strict=True) if value is None]
    if len(missing) == len(names):
        return None
    return f"give all three or none: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} unset"


def _auto_triple(case: TripleCase) -> Verdict:
    if case.numbers[0] is not None:
        return None
    chosen = (3, 1, 4) if case.args.algorithm == "STANDALONE" else auto_triple(case.architecture)
    return Change(chosen, f"no numbers given: SGLang takes {_show(chosen)} for {case.architecture}")


def _trtllm_mha(case: TripleCase) -> Verdict:
    _, topk, _ = case.known
    if topk > 1 and "trtllm_mha" in case.args.backends:
        return f"attention backend trtllm_mha needs eagle_topk 1, not {topk}"
    return None


def _draft_backend(case: TripleCase) -> Verdict:
    steps, topk, _ = case.known
    backend = case.args.draft_backend
    if topk > 1 and steps > 1 and (backend == "flashmla" or (backend == "flashinfer" and case.mla_draft)):
        kind = "flashinfer with an MLA draft" if backend == "flashinfer" else "flashmla"
        return f"draft attention backend {kind} needs eagle_topk 1, not {topk}"
    return None


def _speculation_backend(case: TripleCase) -> Verdict:
    if "flex_attention" in case.args.backends:
        return "attention backend flex_attention does not support speculative decoding"
    # one step needs no multi-step decode backend, only the one that extends the draft's cache
    needed = [case.args.draft_backend] if case.known[0] > 1 else []
    for backend in (*needed, case.args.draft_extend_backend):
        if backend is not None and backend not in DRAFT_BACKENDS:
            return f"attention backend {backend} cannot run a draft (legal: {', '.join(sorted(DRAFT_BACKENDS))})"
    return None


def _rejection_sampling(case: TripleCase) -> Verdict:
    if not case.args.on("speculative_use_rejection_sampling"):
        return None
    _, topk, _ = case.known
    if case.args.algorithm not in ("EAGLE", "EAGLE3"):
        return f"speculative_use_rejection_sampling needs EAGLE or EAGLE3, not {case.args.algorithm}"
    if topk != 1:
        return f"speculative_use_rejection_sampling needs eagle_topk 1, not {topk}"
    for name in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
        if case.args.threshold(name) != 1.0:
            return f"speculative_use_rejection_sampling needs {name} 1.0, not {case.args.threshold(name)}"
    return None


def _topk1_tokens(case: TripleCase) -> Verdict:
    steps, topk, tokens = case.known
    if topk != 1 or tokens == steps + 1:
        return None
    chain = (steps, 1, steps + 1)
    return Change(
        chain, f"eagle_topk 1 makes num_draft_tokens num_steps + 1: {_show(case.known)} runs as {_show(chain)}"
    )


def _paged_tree(backends: tuple[str, ...]) -> Callable[[TripleCase], Verdict]:
    def check(case: TripleCase) -> Verdict:
        _, topk, _ = case.known
        backend, page = case.args.base_backend, case.args.page_size
        if topk == 1 or page == 1 or backend is None or backend in backends:
            return None
        return f"eagle_topk {topk} with page_size {page} needs attention backend {' or '.join(backends)}, not {backend}"

    return check


def _chain_only(case: TripleCase) -> Verdict:
    _, topk, _ = case.known
    for flag in ("enable_linear_replayssm_spec", "enable_unified_memory"):
        if topk > 1 and case.args.on(flag):
            return f"{flag} needs eagle_topk 1, not {topk}"
    return None


def _tokens_below_steps(case: TripleCase) -> Verdict:
    steps, topk, tokens = case.known
    if topk == 1 or tokens >= steps + 1:
        return None
    return f"need num_draft_tokens {tokens} >= num_steps + 1 = {steps + 1} when eagle_topk > 1"


def _tree_pool(case: TripleCase) -> Verdict:
    steps, topk, tokens = case.known
    pool = tree_pool(steps, topk)
    return None if tokens - 1 <= pool else f"need n-1={tokens - 1} > pool {pool}"


def _show(numbers: tuple[int, int, int]) -> str:
    return "({},{},{})".format(*numbers)


_HOOK = "arg_groups/speculative_hook.py"

TRIPLE_RULES: tuple[TripleRule, ...] = (
    TripleRule(
        name="adaptive_steps",
        source=f"{_HOOK}, _init_adaptive_speculative_params",
        check=_adaptive,
        since="0.5.13",
    ),
    TripleRule(name="topk1_tokens", source=f"{_HOOK}, _handle_eagle_family", check=_chain_without_tokens),
    TripleRule(name="all_or_none", source=f"{_HOOK}, _handle_eagle_family (assert)", check=_all_or_none),
    TripleRule(name="auto_triple", source=f"{_HOOK}, _auto_choose_speculative_params", check=_auto_triple),
    TripleRule(name="backend_topk", source=f"{_HOOK}, _handle_eagle_family", check=_trtllm_mha),
    TripleRule(
        name="backend_topk",
        source="layers/attention/flashmla_backend.py and flashinfer_mla_backend.py, multi-step draft backends",
        check=_draft_backend,
    ),
    TripleRule(
        name="backend_speculation",
        source="speculative/draft_utils.py, DraftBackendFactory; arg_groups/attention_hook.py (flex_attention)",
        check=_speculation_backend,
    ),
    TripleRule(
        name="rejection_sampling_topk",
        source=f"{_HOOK}, _handle_eagle_family",
        check=_rejection_sampling,
        since="0.5.15",
    ),
    TripleRule(name="topk1_tokens", source=f"{_HOOK}, _handle_eagle_family", check=_topk1_tokens),
    TripleRule(
        name="page_size_topk",
        source="server_args.py, __post_init__ (before the hooks were split off)",
        check=_paged_tree(PAGED_TREE_BACKENDS_BEFORE),
        until="0.5.13",
    ),
    TripleRule(
        name="page_size_topk",
        source=f"{_HOOK}, _handle_eagle_family (_PAGE_TREE_SPEC_BACKENDS)",
        check=_paged_tree(PAGED_TREE_BACKENDS),
        since="0.5.13",
    ),
    TripleRule(
        name="chain_only_topk",
        source="arg_groups/attention_hook.py (linear replay), arg_groups/kv_cache_hook.py (unified memory)",
        check=_chain_only,
        since="0.5.23",
    ),
    TripleRule(
        name="tokens_below_steps",
        source="speculative/eagle_worker_common.py, _compact_accept_to_front: a block of n rows takes s+1 of them",
        check=_tokens_below_steps,
        since="0.5.13",
    ),
    TripleRule(
        name="tree_pool",
        source="speculative/eagle_utils.py, organize_draft_results: torch.topk of n-1; pool also in sglang PR #24054",
        check=_tree_pool,
    ),
)


@lru_cache
def _rules_of(sglang_version: str) -> tuple[TripleRule, ...]:
    return tuple(rule for rule in TRIPLE_RULES if holds(sglang_version, rule.since, rule.until))


@dataclass(frozen=True, slots=True)
class TripleRuling:
    """Numbers after all rules, or `refusal` (rule, message). `changes` are (rule, message) in order."""

    numbers: tuple[int, int, int] | None
    changes: tuple[tuple[str, str], ...] = ()
    refusal: tuple[str, str] | None = None


def judge_triple(case: TripleCase, sglang_version: str) -> TripleRuling:
    """Applies the table in order; the first refusal ends it."""
    changes: list[tuple[str, str]] = []
    for rule in _rules_of(sglang_version):
        verdict = rule.check(case)
        if isinstance(verdict, str):
            return TripleRuling(numbers=None, changes=tuple(changes), refusal=(rule.name, verdict))
        if verdict is not None:
            changes.append((rule.name, verdict.message))
            case = replace(case, numbers=verdict.numbers)
    return TripleRuling(numbers=case.known, changes=tuple(changes))
