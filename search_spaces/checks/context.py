"""What a check sees, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from search_spaces.config import FlagValue
from search_spaces.dialects import Capture, Dialect
from search_spaces.model_facts import DraftFacts, TargetFacts

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fact about a pair that the user should know.

    `error`: the server will not start, or will serve a draft that cannot work. `warning`: it may serve worse than it
    could, or measure something else than it seems to. `info`: what SGLang will do. `message` is one line and says what
    SGLang does, `evidence` the values it rests on, `mend` what to change (empty when nothing needs to).
    """

    id: str
    severity: Severity
    message: str
    evidence: str
    mend: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class CheckContext:
    """The pair, how it is to be served, and what the target's dialect captures for the draft's ids and for none.

    `flags` are SGLang's in snake_case; `environment` the variables the server would inherit.
    """

    target: TargetFacts
    draft: DraftFacts
    tp_size: int
    sglang_version: str
    flags: Mapping[str, FlagValue]
    environment: Mapping[str, str]
    dialect: Dialect
    capture: Capture
    default: Capture


def error(id: str, message: str, evidence: str, mend: str) -> Finding:
    return Finding(id=id, severity="error", message=message, evidence=evidence, mend=mend)


def warning(id: str, message: str, evidence: str, mend: str) -> Finding:
    return Finding(id=id, severity="warning", message=message, evidence=evidence, mend=mend)


def info(id: str, message: str, evidence: str, mend: str = "") -> Finding:
    return Finding(id=id, severity="info", message=message, evidence=evidence, mend=mend)
