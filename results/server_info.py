"""`/server_info` dumps as rows: what the server runs, and its running average, marked as such."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from results.acceptance import read_server_average
from results.external import ExternalRow
from results.sglang_log import args_row

RUNNING_AVERAGE = "accept length is the server's running average since its start or its last successful flush"


def is_server_info(content: object) -> bool:
    """Whether a parsed JSON value is a `/server_info` dump rather than a row."""
    return isinstance(content, Mapping) and bool({"internal_states", "launch_command", "server_args"} & content.keys())


def server_info_row(content: Mapping[str, Any], source: str) -> ExternalRow:
    """One row from a dump. The accept length is the server's own average; the notes say why it is absent, if it is."""
    nested = content.get("server_args")
    args = {**nested, **content} if isinstance(nested, Mapping) else dict(content)
    row = args_row(args, source)
    average, reason = read_server_average(content)
    states = [state for state in content.get("internal_states") or () if isinstance(state, Mapping)]
    throughputs = [s["last_gen_throughput"] for s in states if isinstance(s.get("last_gen_throughput"), int | float)]
    notes = [RUNNING_AVERAGE] if average is not None else [f"accept_length: null, reason: {reason}"]
    asked = _asked_draft_tokens(content.get("launch_command"))
    if asked is not None and row.num_draft_tokens is not None and asked != row.num_draft_tokens:
        notes.append(f"the launch command asked for {asked} draft tokens, the server runs {row.num_draft_tokens}")
    version = content.get("version")
    return replace(
        row,
        accept_length=average,
        num_draft_tokens=asked or row.num_draft_tokens,
        output_throughput=float(sum(throughputs)) if throughputs else None,
        sglang_version=version if isinstance(version, str) else None,
        notes=tuple(notes),
    )


def _asked_draft_tokens(command: object) -> int | None:
    """`--speculative-num-draft-tokens` of the original call, None when it is not there or not a number."""
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError:
            return None
    elif isinstance(command, list):
        words = [str(word) for word in command]
    else:
        return None
    words = [part for word in words for part in word.split("=", 1)]
    flag = "--speculative-num-draft-tokens"
    value = words[words.index(flag) + 1 :][:1] if flag in words else []
    return int(value[0]) if value and value[0].isdigit() and int(value[0]) > 0 else None
