"""Small values for tests of trials: jobs, launches, cells."""

from __future__ import annotations

from actors.job import TrialJob
from actors.load.workload import Prompt, Workload
from results.observations import CellObservation, LaunchObservation, RequestRow
from search_spaces.config import EngineConfig, Triple

WORKLOAD = Workload(
    prompts=(Prompt(prompt_id="p0", text="one"), Prompt(prompt_id="p1", text="two")),
    warmup=(Prompt(prompt_id="w0", text="warm"),),
    concurrency=(1,),
    max_new_tokens=8,
    temperature=0.0,
    ignore_eos=True,
    stream=True,
    request_timeout_s=10.0,
    max_attempts=1,
)


def config(steps: int = 3, topk: int = 1, tokens: int | None = None, *, tp_size: int = 1) -> EngineConfig:
    triple = Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens or steps + 1)
    return EngineConfig(layout=(0, 3, 7), triple=triple, tp_size=tp_size)


def baseline(tp_size: int = 1) -> EngineConfig:
    return EngineConfig(layout=None, triple=None, tp_size=tp_size)


def job(trial_id: str = "t0000-a1", *, tp_size: int = 1) -> TrialJob:
    return TrialJob(trial_id=trial_id, config=config(tp_size=tp_size), workload=WORKLOAD)


def launch() -> LaunchObservation:
    return LaunchObservation(
        command=("python", "-m", "sglang.launch_server"),
        engine_version="0.5.23",
        accelerator="a test",
        stand_in_kernels=False,
        ready_s=1.0,
        pid=1,
        port=30000,
        device_ids=(),
        effective_args={"max_running_requests": 48},
    )


def row(prompt_id: str, *, tokens: int, finished_s: float, steps: int | None, triple: Triple | None) -> RequestRow:
    """One request that took `steps` verify steps (None: no speculation) and made `tokens` tokens."""
    accepted = None if steps is None else tokens - 1 - steps
    histogram = None
    if steps is not None and triple is not None and accepted is not None:
        # at most one draft accepted a step
        histogram = (steps - accepted, accepted, *[0] * (triple.num_steps - 1))
    return RequestRow(
        prompt_id=prompt_id,
        sent_s=0.0,
        first_token_s=finished_s / 10,
        finished_s=finished_s,
        chunk_times_s=(finished_s / 10, finished_s),
        chunk_tokens=(1, tokens - 1),
        prompt_tokens=4,
        cached_tokens=0,
        completion_tokens=tokens,
        verify_steps=steps,
        proposed_drafts=None if steps is None or triple is None else (triple.num_draft_tokens - 1) * steps,
        correct_drafts=accepted,
        histogram=histogram,
        output_ids=tuple(range(tokens)),
        finish_reason="length",
        attempts=1,
        error=None,
    )


def cell(concurrency: int = 1, *, seconds: float = 2.0, triple: Triple | None = None) -> CellObservation:
    """Two requests of 41 tokens each: 82 tokens in `seconds`. Without a triple there was no speculation."""
    steps = None if triple is None else 30
    rows = tuple(row(name, tokens=41, finished_s=seconds, steps=steps, triple=triple) for name in ("p0", "p1"))
    return CellObservation(
        concurrency=concurrency,
        workload_id=WORKLOAD.workload_id,
        started_at_unix_s=1000.0,
        duration_s=seconds,
        flush_verified=True,
        server_accept_length=None,
        server_accept_length_reason="not asked",
        rows=rows,
    )
