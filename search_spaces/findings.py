"""Static findings on a draft and target pair: what SGLang will do with it, before any launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces.checkpoints import override_draft
from search_spaces.checks import (
    environment,
    ids,
    positions,
    precision,
    settings,
    tensors,
    vocabulary,
    widths,
)
from search_spaces.checks.context import CheckContext, Finding, error
from search_spaces.config import EngineConfig, FlagValue
from search_spaces.dialects import PLUS_ONE, find_dialect, unsupported
from search_spaces.model_facts import DraftFacts, TargetFacts

__all__ = ["CHECK_SCHEMA", "CheckReport", "Finding", "check_pair"]

CHECK_SCHEMA = 1

Check = Callable[[CheckContext], list[Finding]]

LAYOUT_CHECKS: tuple[Check, ...] = (
    ids.misplaced_ids,
    ids.aux_states_off,
    ids.copied_default,
    ids.capture_problems,
    ids.unordered_ids,
    ids.embedding_tap,
    widths.fc_width,
)
PAIR_CHECKS: tuple[Check, ...] = (
    widths.draft_class,
    widths.hidden_size,
    widths.layers,
    tensors.fc_present,
    vocabulary.vocabulary_map,
    vocabulary.output_layer,
    vocabulary.tied_output_layer,
    vocabulary.shared_vocabulary,
    positions.position_range,
    positions.rope,
    tensors.norm_placement,
    tensors.norm_output,
    tensors.norm_widths,
    tensors.layer_parts,
    tensors.ignored_tensors,
    precision.dtype,
    precision.quantisation,
    settings.speculation,
    environment.environment_variables,
    widths.weight_files,
)
ASSUMED = PLUS_ONE
"""Stands in for the dialect of a class that SGLang does not support; no check that rests on it is then run."""
_RANK = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """Everything `check` says. `layout_taps` are the taps that feed `fc`, in order, None for a class unknown to us.

    `layout_source` is where SGLang takes the ids from: `eagle_config`, `default` or the flag that overrides the
    draft's config. `effective` is None when the triple or a flag is illegal.
    """

    findings: tuple[Finding, ...]
    layout_taps: tuple[int, ...] | None
    layout_ids: tuple[int, ...] | None
    layout_source: str
    effective: EngineConfig | None
    sglang_version: str

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": CHECK_SCHEMA,
            "findings": [finding.to_json() for finding in self.findings],
            "layout": {
                "taps": None if self.layout_taps is None else list(self.layout_taps),
                "ids": None if self.layout_ids is None else list(self.layout_ids),
                "source": self.layout_source,
            },
            "effective": self._effective(),
        }

    def _effective(self) -> dict[str, Any] | None:
        if self.effective is None or self.effective.triple is None:
            return None
        triple = self.effective.triple
        return {
            "num_steps": triple.num_steps,
            "eagle_topk": triple.eagle_topk,
            "num_draft_tokens": triple.num_draft_tokens,
            "ceiling": triple.ceiling,
            "tp_size": self.effective.tp_size,
            "sglang_version": self.sglang_version,
            "flags": dict(self.effective.flags),
        }


def check_pair(
    target: TargetFacts,
    draft: DraftFacts,
    *,
    tp_size: int,
    sglang_version: str,
    flags: Mapping[str, FlagValue],
    environment: Mapping[str, str],
) -> CheckReport:
    """All findings on a pair, worst first; no I/O except a draft config that a flag names. Raises `InputError`.

    `flags` are SGLang's in snake_case (the triple among them as speculative_num_steps and so on); `environment` holds
    the variables the server would inherit.
    """
    draft = override_draft(draft, flags)
    dialect = find_dialect(target.architecture, sglang_version)
    base = CheckContext(
        target=target,
        draft=draft,
        tp_size=tp_size,
        sglang_version=sglang_version,
        flags=flags,
        environment=environment,
        dialect=dialect or ASSUMED,
        capture=(dialect or ASSUMED).capture(draft.aux_ids, target.num_layers),
        default=(dialect or ASSUMED).capture(None, target.num_layers),
    )
    found: list[Finding] = []
    if dialect is None:
        found.append(
            error(
                "target-class",
                unsupported(target.architecture, sglang_version),
                f"architectures of {target.path / 'config.json'}",
                "serve it with an SGLang that supports EAGLE-3 on this class",
            )
        )
    else:
        found += [finding for check in LAYOUT_CHECKS for finding in check(base)]
    found += [finding for check in PAIR_CHECKS for finding in check(base)]
    return CheckReport(
        findings=tuple(sorted(found, key=lambda finding: _RANK[finding.severity])),
        layout_taps=None if dialect is None else base.capture.taps,
        layout_ids=draft.aux_ids,
        layout_source=_source(draft, flags),
        effective=None if dialect is None else settings.effective(base),
        sglang_version=sglang_version,
    )


def _source(draft: DraftFacts, flags: Mapping[str, FlagValue]) -> str:
    if draft.aux_ids is None:
        return "default"
    for flag in ("json_model_override_args", "decrypted_draft_config_file"):
        if flags.get(flag):
            return flag
    return "eagle_config"
