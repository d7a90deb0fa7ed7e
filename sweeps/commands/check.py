"""`specsweep check`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Annotated, Any

import typer

from search_spaces.checkpoints import read_draft, read_target
from search_spaces.config import FlagValue, layout_label
from search_spaces.errors import InputError
from search_spaces.findings import CheckReport, check_pair
from search_spaces.versions import READ_VERSION
from sweeps.commands.options import AsJson, print_json
from sweeps.commands.paragraphs import paragraph
from sweeps.overrides import parse_overrides

_ALIASES = {
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "num_steps": "speculative_num_steps",
    "eagle_topk": "speculative_eagle_topk",
    "num_draft_tokens": "speculative_num_draft_tokens",
}
"""Other spellings: SGLang's own, and the names a spec uses."""
_TENSOR_PARALLEL = ("tp", "tp_size", "tensor_parallel_size")
_WHOLE = (
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "pp_size",
    "dp_size",
    "attn_dp_size",
    "moe_dp_size",
    "ep_size",
    "nnodes",
    "page_size",
    "context_length",
    "max_running_requests",
)


def check(  # noqa: PLR0917  (options of the command line)
    target: Annotated[str, typer.Option(help="The target: a folder, or a repo id in the local Hugging Face cache.")],
    draft: Annotated[str, typer.Option(help="The EAGLE-3 draft: a folder, or a repo id in the local cache.")],
    tp: Annotated[int, typer.Option(min=1, help="Tensor parallel size it is to be served at.")] = 1,
    sglang_version: Annotated[
        str | None, typer.Option(metavar="V", help="SGLang's version. Default: the installed one.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FLAG=VALUE", help="A server flag, e.g. --set page_size=64. May be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a draft and a target before anything is launched.

    Reads configs and safetensors headers only; needs neither SGLang nor a GPU nor the network. Exit code 1 when there
    is an error among the findings.
    """
    report = check_checkpoints(
        target, draft, tp_size=tp, sglang_version=sglang_version, settings=settings or (), environment=os.environ
    )
    if as_json:
        print_json(report.to_json())
    else:
        typer.echo(show_report(report))
    raise typer.Exit(1 if report.has_errors else 0)


def check_checkpoints(
    target: str,
    draft: str,
    *,
    tp_size: int,
    sglang_version: str | None,
    settings: Iterable[str],
    environment: Mapping[str, str],
) -> CheckReport:
    """Findings for two places on disk and `flag=value` texts. Raises `InputError`."""
    return check_pair(
        read_target(target),
        read_draft(draft),
        tp_size=tp_size,
        sglang_version=sglang_version or installed_sglang() or READ_VERSION,
        flags=parse_flags(settings),
        environment=environment,
    )


def installed_sglang() -> str | None:
    """The version of the SGLang in this interpreter, without importing it; None when there is none."""
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return None


def parse_flags(texts: Iterable[str]) -> dict[str, FlagValue]:
    """`flag=value` texts as SGLang flags in snake_case; leading dashes and dashes inside are accepted, null unsets.

    Raises `InputError` for nested names, values that no flag takes, and tp, which has its own option.
    """
    flags: dict[str, FlagValue] = {}
    for override in parse_overrides(texts):
        name = str(override.path[0]).lstrip("-").replace("-", "_")
        name = _ALIASES.get(name, name)
        if len(override.path) > 1:
            raise InputError(f"{override.source}: a server flag has no parts; write flag=value")
        if name in _TENSOR_PARALLEL:
            raise InputError(f"{override.source}: give the tensor parallel size as --tp")
        value = override.value
        if isinstance(value, dict | list):
            value = json.dumps(value)
        if value is None:
            flags.pop(name, None)
            continue
        if not isinstance(value, bool | int | float | str):
            raise InputError(f"{override.source}: a flag's value is a number, a word or true/false, not {value!r}")
        if name in _WHOLE and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f"{override.source}: {name} must be a whole number of at least 1, not {value!r}")
        flags[name] = value
    return flags


def show_report(report: CheckReport) -> str:
    """The report for a terminal: what will run, then every finding with its evidence and mend."""
    content = report.to_json()
    lines = [f"SGLang {report.sglang_version}", _layout_line(report), _effective_line(content["effective"]), ""]
    for finding in report.findings:
        lines += paragraph(f"{finding.severity.upper()} {finding.id}: ", finding.message)
        lines += paragraph("    evidence: ", finding.evidence)
        if finding.mend:
            lines += paragraph("    mend: ", finding.mend)
    counts = dict.fromkeys(("error", "warning", "info"), 0)
    for finding in report.findings:
        counts[finding.severity] += 1
    lines += ["", f"{counts['error']} errors, {counts['warning']} warnings, {counts['info']} notes"]
    return "\n".join(lines)


def _layout_line(report: CheckReport) -> str:
    if report.layout_taps is None:
        return "layout: unknown target class"
    ids = "none" if report.layout_ids is None else layout_label(report.layout_ids)
    return f"layout: taps {layout_label(report.layout_taps) or 'none'} (ids {ids}, from {report.layout_source})"


def _effective_line(effective: Mapping[str, Any] | None) -> str:
    if effective is None:
        return "effective: would not run"
    triple = f"({effective['num_steps']},{effective['eagle_topk']},{effective['num_draft_tokens']})"
    return f"effective: {triple} at tp {effective['tp_size']}, accept length at most {effective['ceiling']}"
