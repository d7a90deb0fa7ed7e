"""Environment variables that falsify what a server reports or how it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces.checks.context import CheckContext, Finding, Severity

_OFF = ("", "0", "false", "no", "n", "off")


@dataclass(frozen=True, kw_only=True)
class FalsifyingVariable:
    """A variable whose value, when it is on, makes results untrue. Names are those of `srt/environ.py` of 0.5.23."""

    name: str
    id: str
    severity: Severity
    does: str


FALSIFYING: tuple[FalsifyingVariable, ...] = (
    FalsifyingVariable(
        name="SGLANG_SIMULATE_ACC_LEN",
        id="simulated-acceptance",
        severity="error",
        does="simulated acceptance is on: SGLang forces the accept length (clamped to 1..num_steps + 1) and ignores the"
        " draft",
    ),
    FalsifyingVariable(
        name="SGLANG_SIMULATE_UNIFORM_EXPERTS",
        id="simulated-experts",
        severity="error",
        does="expert routing is replaced by a uniform one: outputs and acceptance are not the model's",
    ),
    FalsifyingVariable(
        name="SGLANG_SIMULATE_ROUND_ROBIN_EXPERTS",
        id="simulated-experts",
        severity="error",
        does="expert routing is replaced by round robin: outputs and acceptance are not the model's",
    ),
    FalsifyingVariable(
        name="SGLANG_IS_IN_CI",
        id="ci-mode",
        severity="error",
        does="SGLang believes it is in its own CI: benchmarks flush the cache silently, checks and limits differ",
    ),
    FalsifyingVariable(
        name="SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
        id="context-length-override",
        severity="warning",
        does="SGLang stretches a draft's position range to the target's instead of refusing it",
    ),
    FalsifyingVariable(
        name="MLFLOW_RUN_ID",
        id="foreign-run-id",
        severity="warning",
        does="every MLflow run started here joins that run instead of its own",
    ),
)


def is_set(environment: Mapping[str, str], name: str) -> bool:
    """Whether a switch is on. A number counts as on when it is above zero, as SGLANG_SIMULATE_ACC_LEN does."""
    value = environment.get(name, "").strip().lower()
    try:
        return float(value) > 0
    except ValueError:
        return value not in _OFF


def falsifying_variables(environment: Mapping[str, str]) -> tuple[FalsifyingVariable, ...]:
    """The variables of `environment` that are on and make results untrue."""
    return tuple(variable for variable in FALSIFYING if is_set(environment, variable.name))


def environment_variables(context: CheckContext) -> list[Finding]:
    return [
        Finding(
            id=variable.id,
            severity=variable.severity,
            message=variable.does,
            evidence=f"{variable.name}={context.environment[variable.name]}",
            mend=f"unset {variable.name} where the server is started (a Ray worker inherits its node's environment)",
        )
        for variable in falsifying_variables(context.environment)
    ]
