"""What a server says it runs, against what was asked of it. Pure; `/server_info` is the engine's own word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors.engines.command import REDACTED, SECRET
from actors.engines.launch_log import STAMP
from results.server_limits import EFFECTIVE_LIMIT
from search_spaces.config import EngineConfig, FlagValue, Triple

DECISIVE = (
    "model_path",
    "tp_size",
    "pp_size",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "decrypted_draft_config_file",
)
"""Arguments that identify a trial, beside the triple: another value means another trial."""

NOT_COMPARED = frozenset({"port", "nccl_port", "skip_server_warmup", "log_level", "host"})

CHANGES = re.compile(
    r"is adjusted to|is reset to|is set to|will be (?:set|disabled|ignored)|fall(?:ing)? ?back|roll back"
    r"|is (?:automatically )?disabled|(?:are|is) not (?:supported|implemented)|overrid",
    re.I,
)
"""How SGLang says that it runs something else than it was told."""

ABOUT_SERVING = re.compile(r"specul|draft|attention|overlap|graph|running.requests|chunk|memory|page|cache", re.I)

MAX_FINDINGS = 20


@dataclass(frozen=True, kw_only=True)
class Verification:
    """`mismatch` is one line when the server is not the one that was asked for; `findings` are lesser differences."""

    mismatch: str | None
    findings: tuple[str, ...]


def read_triple(info: Mapping[str, Any]) -> Triple | None:
    """The triple a server runs, None without speculation. ValueError when it speculates but names no numbers."""
    if info.get("speculative_algorithm") is None:
        return None
    numbers = [info.get(f"speculative_{name}") for name in ("num_steps", "eagle_topk", "num_draft_tokens")]
    if not all(isinstance(number, int) for number in numbers):
        raise ValueError(f"the server speculates without naming its triple: {numbers}")
    steps, topk, tokens = (int(number) for number in numbers if number is not None)
    return Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)


def verify(info: Mapping[str, Any], config: EngineConfig, asked: Mapping[str, FlagValue]) -> Verification:
    """Compare `/server_info` with the configuration and with every argument that was given."""
    mismatches: list[str] = []
    try:
        triple = read_triple(info)
    except ValueError as problem:
        return Verification(mismatch=str(problem), findings=())
    if triple != config.triple:
        mismatches.append(f"asked for {_name(config.triple)}, the server runs {_name(triple)}")
    findings: list[str] = []
    for name, value in asked.items():
        if name in NOT_COMPARED or name.startswith("speculative_num") or name == "speculative_eagle_topk":
            continue
        runs = info.get(name, value)
        if not _same(value, runs):
            line = f"{name}: asked for {value}, the server runs {runs}"
            (mismatches if name in DECISIVE else findings).append(line)
    findings += _capped_requests(info, asked)
    return Verification(mismatch="; ".join(mismatches) or None, findings=tuple(findings))


def is_another_server(info: Mapping[str, Any], port: int, rendezvous_port: int) -> bool:
    """True when whoever answers on our port is not the server we started: it was given other ports."""
    said = (info.get("port", port), info.get("nccl_port", rendezvous_port))
    return said != (port, rendezvous_port)


def log_findings(log: str) -> tuple[str, ...]:
    """SGLang's own words, once each, on arguments that it changed by itself."""
    found: dict[str, None] = {}
    for line in log.splitlines():
        text = STAMP.sub("", line).removeprefix("WARNING ").strip()
        if STAMP.match(line) and CHANGES.search(text) and ABOUT_SERVING.search(text) and len(text) < 400:
            found.setdefault(f"SGLang: {text}")
    return tuple(found)[:MAX_FINDINGS]


def resolved_args(info: Mapping[str, Any]) -> dict[str, Any]:
    """The server's resolved arguments without its live state, secrets removed.

    Of its state only the limit on running requests is kept, which its memory pools may have lowered.
    """
    args = {name: value for name, value in info.items() if name != "internal_states"}
    limits = _pool_limits(info)
    if limits:
        args[EFFECTIVE_LIMIT] = sum(limits)
    for name, value in args.items():
        if SECRET.search(name) and value is not None:
            args[name] = REDACTED
    if isinstance(args.get("launch_command"), str):
        args["launch_command"] = re.sub(
            r"(--[\w-]*(?:api-key|password|token|secret)[= ])\S+", rf"\1{REDACTED}", args["launch_command"]
        )
    return args


def _same(asked: FlagValue, runs: object) -> bool:
    if isinstance(asked, bool) or isinstance(runs, bool) or runs is None:
        return asked is runs
    if isinstance(asked, int | float) and isinstance(runs, int | float):
        return float(asked) == float(runs)
    if isinstance(runs, list | dict):
        return True  # parsed, so it cannot be compared with its text
    return str(asked) == str(runs)


def _capped_requests(info: Mapping[str, Any], asked: Mapping[str, FlagValue]) -> list[str]:
    """SGLang shrinks the number of concurrent requests to what its memory pools hold."""
    wanted = asked.get("max_running_requests")
    smallest = min(_pool_limits(info), default=None)
    if smallest is None or not isinstance(wanted, int) or smallest >= wanted:
        return []
    return [f"max_running_requests: asked for {wanted}, the memory pools allow {smallest}"]


def _pool_limits(info: Mapping[str, Any]) -> list[int]:
    """What the memory pools of each data-parallel rank hold, as far as the server tells."""
    states = info.get("internal_states")
    states = states if isinstance(states, list) else []
    limits = [state.get("effective_max_running_requests_per_dp") for state in states if isinstance(state, dict)]
    return [limit for limit in limits if isinstance(limit, int) and not isinstance(limit, bool)]


def _name(triple: Triple | None) -> str:
    return "no speculation" if triple is None else f"(num_steps, eagle_topk, num_draft_tokens) = {triple}"
