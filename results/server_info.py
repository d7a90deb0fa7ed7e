"""`/server_info` dumps as rows: what the server runs, and its running average, marked as such."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from results.acceptance import read_server_average
from results.external_row import ExternalRow
from results.server_arguments import args_row, plain_args

STATE_KEYS = frozenset({"avg_spec_accept_length", "last_gen_throughput"})
RUNNING_AVERAGE = "accept length is the server's running average since its start or its last successful flush"


_MARKS = frozenset({"internal_states", "launch_command", "server_args", "model_path", *STATE_KEYS})


def is_server_info(content: object) -> bool:
    """Whether a parsed JSON value is a `/server_info` dump rather than a row."""
    return isinstance(content, Mapping) and bool(_MARKS & content.keys())


def server_info_row(content: Mapping[str, Any], source: str) -> ExternalRow:
    """One row from a dump. The accept length is the server's own average; the notes say why it is absent, if it is.

    Arguments may stand at the top or under `server_args`, in any spelling that SGLang's command line knows.
    """
    nested = content.get("server_args")
    args = {**plain_args(nested), **plain_args(content)} if isinstance(nested, Mapping) else plain_args(content)
    content = {**content, "internal_states": _states(content)}
    row = args_row(args, source)
    average, reason = read_server_average(content)
    states = [state for state in content["internal_states"] if isinstance(state, Mapping)]
    throughputs = [s["last_gen_throughput"] for s in states if isinstance(s.get("last_gen_throughput"), float)]
    throughputs = [value for value in throughputs if isfinite(value)]
    notes = [RUNNING_AVERAGE] if average is not None else [f"accept_length: null, reason: {reason}"]
    asked = _asked_draft_tokens(content.get("launch_command"))
    if asked is not None and row.num_draft_tokens is not None and asked != row.num_draft_tokens:
        notes.append(f"the launch command asked for {asked} draft tokens, the server runs {row.num_draft_tokens}")
    version = content.get("version") or content.get("sglang_version")
    return replace(
        row,
        accept_length=average,
        num_draft_tokens=asked or row.num_draft_tokens,
        output_throughput=float(sum(throughputs)) if throughputs else None,
        sglang_version=version if isinstance(version, str) else None,
        notes=tuple(notes),
    )


def _states(content: Mapping[str, Any]) -> list[Any]:
    """The internal states, one a data-parallel rank: a list, a single one, or its keys among the arguments."""
    states = content.get("internal_states")
    if not isinstance(states, list):
        states = [states] if isinstance(states, Mapping) else [content] if STATE_KEYS & content.keys() else []
    return [_with_numbers(state) if isinstance(state, Mapping) else state for state in states]


def _with_numbers(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state whose numbers may have become texts on their way through another program."""
    numbers = {}
    for key in STATE_KEYS & state.keys():
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            numbers[key] = float(state[key])
    return {**state, **numbers}


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
    return int(value[0]) if value and re.fullmatch("0*[1-9][0-9]{0,8}", value[0]) else None
