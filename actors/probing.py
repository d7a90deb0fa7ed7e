"""Drives a probe: what the draft's `fc` receives on every rank, and the target's taps, for a few tokens of prompts."""

from __future__ import annotations

import json
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Protocol

from actors.engines.engine import Engine
from actors.engines.flushing import flush_when_idle
from actors.job import TrialJob, TrialOutcome
from actors.load.workload import Prompt, Workload
from actors.outcomes import end_job
from actors.sglang_plugin.orders import ProbeOrder
from results.failures import Failure
from results.feed import FeedCapture, load_capture
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig

PROBED_TOKENS = 64
MAX_TAP_BYTES = 32 * 2**20
"""A probe records every tap of the target; on a large model fewer tokens are enough to tell them apart."""
MIN_TOKENS = 8

ANSWER_TOKENS = 2
"""The draft is fed a prompt's states when the prompt has been read; what is generated does not matter."""
MAX_PROMPTS = 16
FILE_TIMEOUT_S = 30.0
RID_PREFIX = "specsweep-probe-"

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ProbingEngine(Engine, Protocol):
    """An engine that can be probed; `SwitchingServer` is one."""

    def probe(self, config: EngineConfig, order: ProbeOrder) -> LaunchObservation | Failure:
        """Bring the server into `config`, every rank recording from now to the next order."""
        ...


def can_probe(engine: Engine | None) -> bool:
    """Whether an engine is a `ProbingEngine`. `isinstance` would read `base_url`, which raises while no server runs."""
    return hasattr(type(engine), "probe")


def probe_tokens(num_layers: int, hidden_size: int) -> int:
    """How many tokens to record so that all taps of them stay below `MAX_TAP_BYTES`."""
    return max(MIN_TOKENS, min(PROBED_TOKENS, MAX_TAP_BYTES // (4 * num_layers * hidden_size)))


def run_probe(engine: ProbingEngine, job: TrialJob, max_tokens: int) -> TrialOutcome:
    """Probe the server in the job's configuration; `feeds` of the outcome hold one capture a rank.

    Blocks. The shortest prompts of the workload are sent one at a time. After a failure the engine is closed; after a
    success the next `apply` ends the recording.
    """
    started_at_unix_s = time.time()
    with tempfile.TemporaryDirectory(prefix="specsweep-probe-") as folder:
        prefix = Path(folder) / "feed"
        launched = engine.probe(
            job.config, ProbeOrder(prefix=str(prefix), max_tokens=max_tokens, rid_prefix=RID_PREFIX)
        )
        found = launched if isinstance(launched, Failure) else _record(engine, job, prefix, max_tokens)
    return end_job(
        engine,
        job,
        started_at_unix_s,
        launch=None if isinstance(launched, Failure) else launched,
        failure=found if isinstance(found, Failure) else None,
        feeds=() if isinstance(found, Failure) else found,
    )


def shortest_prompts(workload: Workload) -> list[Prompt]:
    """What is sent, in order: short prompts give more beginnings for the same number of tokens."""
    return sorted(workload.prompts, key=lambda prompt: (len(prompt.text), prompt.prompt_id))[:MAX_PROMPTS]


def _record(engine: Engine, job: TrialJob, prefix: Path, max_tokens: int) -> tuple[FeedCapture, ...] | Failure:
    seen = 0
    try:
        for prompt in shortest_prompts(job.workload):
            if seen >= max_tokens:
                break
            # prompts share beginnings: from the cache a server would feed the draft less than another one does
            _flush(engine.base_url)
            seen += _ask(engine.base_url, prompt, job.workload)
        _flush(engine.base_url)
    except (OSError, ValueError, KeyError) as problem:
        death = engine.failure_now()
        text = " ".join(str(problem).split()) or type(problem).__name__
        return death or Failure(phase="measure", kind="client", message=f"a probed request failed: {text}")
    return _read(prefix, job.config.tp_size, min(seen, max_tokens))


def _read(prefix: Path, ranks: int, tokens: int) -> tuple[FeedCapture, ...] | Failure:
    """All ranks' files with so many tokens. Every flush writes them anew, on ranks other than the first a moment after
    it is answered, so a file may be an earlier one; what is there in the end is taken."""
    deadline = time.monotonic() + FILE_TIMEOUT_S
    while True:
        files = [Path(f"{prefix}.{rank}.npz") for rank in range(ranks)]
        found = [load_capture(file, rank) if file.is_file() else None for rank, file in enumerate(files)]
        captures = [capture for capture in found if capture is not None]
        late = time.monotonic() > deadline
        if len(captures) == ranks and (late or all(len(capture.input_ids) >= tokens for capture in captures)):
            return tuple(captures)
        if late:
            rank = found.index(None)
            told = Path(f"{prefix}.{rank}.problem")
            why = told.read_text("utf-8") if told.is_file() else "this draft's class may have another forward"
            message = f"rank {rank} of {ranks} recorded nothing: {why}"
            return Failure(phase="measure", kind="mismatch", message=message)
        time.sleep(0.05)


def _ask(base_url: str, prompt: Prompt, workload: Workload) -> int:
    """Send one prompt and wait for its answer; returns how many tokens it has."""
    sampling = {"temperature": 0, "max_new_tokens": ANSWER_TOKENS, "ignore_eos": True}
    body = json.dumps({"text": prompt.text, "rid": RID_PREFIX + prompt.prompt_id, "sampling_params": sampling}).encode()
    content = json.loads(_post(base_url + workload.endpoint, body, workload.request_timeout_s))
    return int(content["meta_info"]["prompt_tokens"])


def _flush(base_url: str) -> None:
    """Empty the prefix cache; a server that has just answered may not be idle yet, and is asked again."""
    refused = flush_when_idle(base_url, timeout_s=FILE_TIMEOUT_S, patience_s=FILE_TIMEOUT_S)
    if refused is not None:
        raise OSError(refused)


def _post(url: str, body: bytes, timeout_s: float) -> Any:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")  # noqa: S310
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            return answer.read()
    except urllib.error.HTTPError as problem:
        raise OSError(f"HTTP {problem.code}: {problem.read()[:200].decode(errors='replace')}") from None
