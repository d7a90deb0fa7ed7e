"""SGLang server logs: decode lines, the line of resolved arguments, and the warnings that matter.

Written against 0.5.23 (`srt/managers/scheduler_components/metrics_reporter.py`, `report_decode_stats`) and loose about
everything that differs between versions: field order, extra fields, usage labels, the label of the graph backend.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isfinite
from statistics import median
from typing import Literal

from results.acceptance import rate_definition
from results.external_row import Death, ExternalRow
from results.server_arguments import args_row

_DECODE = re.compile(r"Decode batch\b")
_PREFILL = re.compile(r"Prefill batch\b")
_FIELD = re.compile(r"(#?[A-Za-z][\w .()/#-]*?):\s*(True|False|-?\d+(?:\.\d+)?)")
_TP_RANK = re.compile(r"\bTP(\d+)\b")
_DP_RANK = re.compile(r"\bDP(\d+)\b")
_ADJUSTED = "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1"
_CAPPED = re.compile(r"Max running requests is reset to (\d+) for speculative decoding")
_SIMULATE = re.compile(r"(SGLANG_SIMULATE_ACC_LEN)\s*[=:]\s*'?([\d.]+)")
_ARG = re.compile(r"(\w+)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|None|True|False|-?\d+(?:\.\d+)?(?:e-?\d+)?)(?=[,)])")
_VERSION = re.compile(r"\b(?:sglang|version)\b[^\d\n]{0,12}(\d+\.\d+\.\d+(?:\.post\d+)?)", re.IGNORECASE)
_STAMP = re.compile(r"^(?:\x1b\[[\d;]*m)*\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.MULTILINE)
_DEATHS: tuple[tuple[Literal["tree", "states", "oom"], re.Pattern[str]], ...] = (
    ("tree", re.compile(r"selected index k out of range")),
    ("states", re.compile(r"captured \d+ of \d+\b.*|mat1 and mat2 shapes cannot be multiplied.*")),
    ("oom", re.compile(r"CUDA (?:error: )?out of memory.*|OutOfMemoryError.*")),
)


@dataclass(frozen=True, kw_only=True)
class DecodeLine:
    """One decode line. A field that the line does not carry is None; `accept_rate` is as printed, of either kind."""

    running_requests: int | None
    queued_requests: int | None
    accept_length: float | None
    accept_rate: float | None
    graph: bool | None
    throughput: float | None


@dataclass(frozen=True, kw_only=True)
class LogReading:
    """What one log says. `args` are the resolved server arguments, empty when the log has no such line.

    `cached_token_share` is cached / all prompt tokens over the prefill lines, where only lines that were mostly cached
    count as cached: a template or system prompt that all prompts share is no rerun.
    """

    decode_lines: tuple[DecodeLine, ...]
    args: dict[str, object]
    adjusted_draft_tokens: bool
    capped_at: int | None
    simulated_accept_length: float | None
    cached_token_share: float | None
    version: str | None
    death: Death | None = None


def is_sglang_log(text: str) -> bool:
    known = _DECODE.search(text) or "server_args=" in text or _PREFILL.search(text) or _ADJUSTED in text
    return bool(known or _STAMP.search(text) or any(pattern.search(text) for _, pattern in _DEATHS))


def parse_decode_line(line: str) -> DecodeLine | None:
    """The fields of a decode line, None for any other line."""
    found = _DECODE.search(line)
    if found is None:
        return None
    fields = {name.strip().lower(): value for name, value in _FIELD.findall(line[found.end() :])}
    switches = [value == "True" for value in fields.values() if value in ("True", "False")]
    return DecodeLine(
        running_requests=_int(fields.get("#running-req")),
        queued_requests=_int(fields.get("#queue-req")),
        accept_length=_float(fields.get("accept len")),
        accept_rate=_float(fields.get("accept rate")),
        graph=switches[0] if switches else None,
        throughput=_float(next((v for k, v in fields.items() if k.startswith("gen throughput")), None)),
    )


def _int(text: str | None) -> int | None:
    number = _float(text)
    return None if number is None else int(number)


def _float(text: str | None) -> float | None:
    """A field's number; None when the field is absent or holds a word (a damaged line)."""
    if text is None or text in ("True", "False"):
        return None
    number = float(text)
    return number if isfinite(number) else None


def read_log(lines: Iterable[str]) -> LogReading:
    """Read a log of one server, line by line. Decode lines of other ranks than the first are left out."""
    decoded: list[DecodeLine] = []
    args: dict[str, object] = {}
    adjusted, capped, simulated, version, death = False, None, None, None, None
    new_tokens = cached_tokens = repeated_tokens = 0
    for line in lines:
        if (decode := parse_decode_line(line)) is not None:
            if not _other_rank(line):
                decoded.append(decode)
        elif _PREFILL.search(line):
            fields = {name.strip().lower(): value for name, value in _FIELD.findall(line)}
            new, cached = _int(fields.get("#new-token")) or 0, _int(fields.get("#cached-token")) or 0
            new_tokens += new
            cached_tokens += cached
            repeated_tokens += cached if cached > new else 0
        elif "server_args=" in line or "ServerArgs(" in line:
            args = args or _parse_args(line)
        adjusted = adjusted or _ADJUSTED in line
        if found := _CAPPED.search(line):
            capped = int(found[1])
        if found := _SIMULATE.search(line):
            simulated = float(found[2])
        death = death or _death(line)
        if version is None and (found := _VERSION.search(line)):
            version = found[1]
    total = new_tokens + cached_tokens
    return LogReading(
        decode_lines=tuple(decoded),
        args=args,
        adjusted_draft_tokens=adjusted,
        capped_at=capped,
        simulated_accept_length=simulated if simulated and simulated > 0 else None,
        cached_token_share=repeated_tokens / total if total else None,
        version=version,
        death=death,
    )


def _death(line: str) -> Death | None:
    for kind, pattern in _DEATHS:
        if "server_args=" not in line and (found := pattern.search(line)):
            return Death(kind=kind, line=" ".join(found[0].split())[:160])
    return None


def _other_rank(line: str) -> bool:
    head = line.split("Decode batch", 1)[0]
    rank = _TP_RANK.search(head)
    return rank is not None and rank[1] != "0" and _DP_RANK.search(head) is None


def _parse_args(line: str) -> dict[str, object]:
    """`ServerArgs(name=value, ...)` or a mapping's text, plain values only."""
    pairs = _ARG.findall(line) or re.findall(
        r"['\"](\w+)['\"]:\s*('[^']*'|\"[^\"]*\"|None|null|True|true|False|false|-?\d+(?:\.\d+)?)", line
    )
    words = {"null": None, "true": True, "false": False}
    return {name: words[value] if value in words else ast.literal_eval(value) for name, value in pairs}


def log_row(reading: LogReading, source: str) -> ExternalRow:
    """One row from a log: the median line's accept length and throughput, and what the arguments say.

    A decode line carries the last 40 iterations only and no count, so lines are not pooled by weight; the notes say so.
    """
    spec = [line for line in reading.decode_lines if line.accept_length is not None and line.accept_length > 0]
    lines = reading.decode_lines
    running = [line.running_requests for line in lines if line.running_requests is not None]
    queued = [line.queued_requests for line in lines if line.queued_requests is not None]
    graphs = [line.graph for line in lines if line.graph is not None]
    lengths = [line.accept_length for line in spec if line.accept_length is not None]
    throughputs = [line.throughput for line in lines if line.throughput is not None]
    row = args_row(reading.args, source)
    flags = dict(row.flags)
    if reading.simulated_accept_length is not None:
        flags["SGLANG_SIMULATE_ACC_LEN"] = reading.simulated_accept_length
    inferred = None if reading.args else _inferred_tokens(spec)
    in_flight = max((r + q for r, q in zip(running, queued, strict=False)), default=None)
    return replace(
        row,
        num_steps=inferred - 1 if inferred and reading.adjusted_draft_tokens else row.num_steps,
        eagle_topk=1 if inferred and reading.adjusted_draft_tokens else row.eagle_topk,
        num_draft_tokens=inferred or row.num_draft_tokens,
        accept_length=median(lengths) if lengths else None,
        output_throughput=median(throughputs) if throughputs else None,
        cuda_graph=sum(graphs) * 2 >= len(graphs) if graphs else row.cuda_graph,
        concurrency=in_flight or None,
        cached_token_share=reading.cached_token_share,
        max_running_requests=row.max_running_requests or (reading.capped_at if not reading.args else None),
        sglang_version=row.sglang_version or reading.version,
        flags=flags,
        death=reading.death,
        notes=(*row.notes, *_log_notes(reading, spec, row, running, queued)),
    )


def _inferred_tokens(spec: list[DecodeLine]) -> int | None:
    """num_draft_tokens from accept lengths and rates, (AL - 1)/(n - 1), when all lines agree on one; else None."""
    pairs = [
        (line.accept_length, line.accept_rate)
        for line in spec
        if line.accept_length and line.accept_rate and line.accept_rate > 0.05 and line.accept_length > 1
    ]
    if not pairs:
        return None
    tokens = round(1 + median((length - 1) / rate for length, rate in pairs))
    fits = tokens > 1 and all(abs((length - 1) / (tokens - 1) - rate) <= 0.011 for length, rate in pairs)
    return tokens if fits else None


def _log_notes(
    reading: LogReading, spec: list[DecodeLine], row: ExternalRow, running: list[int], queued: list[int]
) -> list[str]:
    notes = []
    if spec:
        notes.append(f"accept length is the median of {len(spec)} decode lines, 40 iterations each, no prompt known")
    elif reading.decode_lines:
        notes.append("the decode lines carry no accept length: no speculation")
    else:
        notes.append("fewer than one log interval (40 decode iterations): no decode line")
    if reading.adjusted_draft_tokens:
        notes.append("the log says that num_draft_tokens was adjusted to num_steps + 1")
    if reading.capped_at is not None:
        notes.append(f"the log says that max_running_requests was reset to {reading.capped_at}")
    if running and queued and max(queued) > 0:
        notes.append(f"up to {max(running)} requests ran while up to {max(queued)} waited in the queue")
    if row.num_draft_tokens and row.num_draft_tokens > 1 and any(line.accept_rate is not None for line in spec):
        notes.append(_rate_note(spec, row.num_draft_tokens))
    return notes


def _rate_note(spec: list[DecodeLine], num_draft_tokens: int) -> str:
    definitions = {
        rate_definition(line.accept_length, num_draft_tokens, line.accept_rate, tolerance=0.011)
        for line in spec
        if line.accept_rate is not None and line.accept_length is not None
    }
    if definitions == {"correct_over_proposed"}:
        return f"accept rate is (AL - 1)/(n - 1) with n = {num_draft_tokens}"
    if definitions == {"tokens_over_draft_tokens"}:
        return f"accept rate is AL/n with n = {num_draft_tokens}, as versions around 0.5.3 log it"
    return "the accept rate fits neither (AL - 1)/(n - 1) nor AL/n on every line: it is not used"
