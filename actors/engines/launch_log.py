"""From a server's log and exit status to the kind of its failure, and the one line that tells most. Pure."""

from __future__ import annotations

import re

from actors.engines.guarded_process import ExitStatus
from results.failures import Failure, Kind, Phase

TAIL_BYTES = 16_384
MESSAGE_CHARS = 400

EXCEPTION = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Iteration)\b(?::\s.*|\s*)$")
"""The last line of a traceback: a class name, and after a colon the message."""

STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\]\s*")
"""How SGLang's log lines begin."""

CONSEQUENCES = re.compile(
    r"^(?:\w+\.)*(?:EOFError|BrokenPipeError|ConnectionResetError|ConnectionRefusedError|ChildProcessError"
    r"|KeyboardInterrupt|SystemExit|CancelledError)\b|^(?:urllib3|requests|httpx|aiohttp)\."
    r"|scheduler.{0,30}(?:died|is dead)|Initialization failed|Connection closed by peer|Broken pipe"
)
"""What other processes say after one has died: never the cause."""

DEATH = re.compile(r"\b[A-Z]\w+ hit an exception: ")
"""How SGLang's workers announce the traceback they die of (srt/managers/scheduler.py and its neighbours)."""

HARMLESS = re.compile(r"^(?:server_args=|Ignore import error)")
"""Lines that may hold any word without meaning it."""

SIGNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("no_engine", re.compile(r"No module named '?sglang'?\)?$|^cannot start .*: ")),
    ("port_in_use", re.compile(r"address already in use|\[Errno 98\]|EADDRINUSE|port .{0,40}already in use", re.I)),
    (
        "oom",
        re.compile(
            r"CUDA (?:error: )?out of memory|OutOfMemoryError|\bout of memory\b|not enough memory"
            r"|can't allocate memory|cannot allocate memory|\bMemoryError\b|increase --mem-fraction-static",
            re.I,
        ),
    ),
    (
        "bad_config",
        re.compile(
            r"selected index k out of range|topk.{0,40}out of range|shapes cannot be multiplied"
            r"|captured \d+ of \d+|size of tensor a|expanded size of the tensor|(?:shape|size) mismatch"
            r"|sizes of tensors must match"
            r"|: error: (?:argument|unrecognized|the following|ambiguous)"
        ),
    ),
)
"""In order: the first kind with a sign decides."""

REFUSALS = re.compile(
    r"^(?:\w+\.)*(?:ValueError|AssertionError|NotImplementedError|KeyError|TypeError|IndexError|AttributeError"
    r"|FileNotFoundError|OSError|HFValidationError|StrictDataclass\w*Error)\b"
)
"""Exceptions by which SGLang refuses an argument or a checkpoint: the same configuration will fail again."""

MACHINE = re.compile(
    r"\[Errno (?:5|23|24|28|30|107|116|121|122)\]|No space left on device|Disk quota exceeded|Too many open files"
    r"|Input/output error|Stale (?:NFS )?file handle|Read-only file system|Transport endpoint is not connected"
)
"""A disk that is full or fails, and the limits on open files: the same configuration will run elsewhere, or later."""

MISSING = re.compile(r"^(?:ModuleNotFoundError|ImportError)\b")
"""SGLang, or something it needs, cannot be imported."""

DEVICE_TROUBLE = re.compile(r"CUDA error|NCCL error|cudaError|NVLink|Xid", re.I)
"""A device that failed is no fault of the configuration, whatever Python made of it."""


def classify(log: str, status: ExitStatus | None, phase: Phase, *, seconds: float | None = None) -> Failure:
    """The failure that this log shows, for a server that ended with `status`.

    `status` None means that the server still ran when `seconds` were over: a timeout, unless the log shows a cause.
    """
    lines = _clean_lines(log)
    death = next((i for i, line in enumerate(lines) if DEATH.search(line)), 0)
    sign = _first_sign(lines[death:]) or _first_sign(lines)
    cause = _first_cause(lines[death:]) or _first_cause(lines)
    if sign is not None:
        kind, line = sign
        return _failure(phase, kind, line, log)
    told = cause or _last_complaint(lines)
    if told is not None and MACHINE.search(told):
        return _failure(phase, "machine", told, log)
    if cause is not None and MISSING.match(cause):
        return _failure(phase, "no_engine", cause, log)
    if cause is not None and REFUSALS.match(cause) and not DEVICE_TROUBLE.search(cause):
        return _failure(phase, "bad_config", cause, log)
    if status is None:
        said = f" after {seconds:.0f} s" if seconds is not None else ""
        last = f"; last line of its log: {lines[-1]}" if lines else "; its log is empty"
        return _failure(phase, "timeout", f"the server was not ready{said}{last}", log)
    return _failure(phase, "crash", f"the server ended ({status})" + (f": {told}" if told else ""), log)


def tail(log: str, max_bytes: int = TAIL_BYTES) -> str:
    """The end of a log, cut at a line's beginning."""
    data = log.encode()
    if len(data) <= max_bytes:
        return log
    end = data[-max_bytes:]
    return end[end.find(b"\n") + 1 :].decode(errors="replace")


def _clean_lines(log: str) -> list[str]:
    """Lines without stamps and progress bars, stripped at the end; empty and harmless ones left out."""
    lines = (STAMP.sub("", line.rsplit("\r", 1)[-1]).rstrip() for line in log.splitlines())
    return [line for line in lines if line and not HARMLESS.match(line)]


def _first_cause(lines: list[str]) -> str | None:
    return next((line for line in lines if EXCEPTION.match(line) and not CONSEQUENCES.search(line)), None)


def _first_sign(lines: list[str]) -> tuple[Kind, str] | None:
    for kind, pattern in SIGNS:
        hits = [line for line in lines if pattern.search(line)]
        if hits:
            return kind, next((line for line in hits if EXCEPTION.match(line)), hits[0])
    return None


def _last_complaint(lines: list[str]) -> str | None:
    words = ("error", "exception", "fatal", "killed", "sigquit", "segmentation fault", "core dumped")
    return next((line for line in reversed(lines) if any(word in line.lower() for word in words)), None)


def _failure(phase: Phase, kind: Kind, line: str, log: str) -> Failure:
    message = " ".join(line.split())[:MESSAGE_CHARS]
    return Failure(phase=phase, kind=kind, message=message, log_tail=tail(log))
