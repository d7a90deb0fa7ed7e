"""Rows, cells and records for tests: small, consistent, and easy to make inconsistent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from results.cells import summarise_cell
from results.failures import Failure
from results.observations import CellObservation, LaunchObservation, RequestRow
from results.records import RECORD_SCHEMA, Role, TrialRecord
from results.summary import CellSummary, Estimate
from search_spaces.config import EngineConfig, Setting, Triple, layout_label

VARIED_IDS = tuple(int(token) for token in np.random.default_rng(5).integers(0, 5000, 4096))

BASE_ROW = RequestRow(
    prompt_id="p0",
    sent_s=0.0,
    first_token_s=0.1,
    finished_s=1.1,
    chunk_times_s=(0.1, 1.1),
    chunk_tokens=(1, 105),
    prompt_tokens=50,
    cached_tokens=0,
    completion_tokens=106,
    verify_steps=43,
    proposed_drafts=215,
    correct_drafts=63,
    histogram=(11, 14, 11, 4, 0, 3),
    output_ids=VARIED_IDS[:106],
    finish_reason="length",
    attempts=1,
    error=None,
)
"""The per-request fields of a real answer at (5,1,6), as shown in sglang PR #33518."""


def row(**changes: Any) -> RequestRow:
    return replace(BASE_ROW, **changes)


def spec_row(prompt_id: str, histogram: Sequence[int], num_draft_tokens: int, **changes: Any) -> RequestRow:
    """A row whose counters all follow from its histogram."""
    steps = sum(histogram)
    correct = sum(i * count for i, count in enumerate(histogram))
    values = {
        "prompt_id": prompt_id,
        "histogram": tuple(histogram),
        "verify_steps": steps,
        "correct_drafts": correct,
        "proposed_drafts": steps * (num_draft_tokens - 1),
        "completion_tokens": steps + correct,
        "output_ids": VARIED_IDS[: steps + correct],
    }
    return row(**{**values, **changes})


def cell(rows: Sequence[RequestRow], **changes: Any) -> CellObservation:
    values: dict[str, Any] = {
        "concurrency": 1,
        "workload_id": "w" * 16,
        "started_at_unix_s": 1_800_000_000.0,
        "duration_s": max((row.finished_s for row in rows), default=1.0),
        "flush_verified": True,
        "server_accept_length": None,
        "server_accept_length_reason": None,
        "rows": tuple(rows),
    }
    return CellObservation(**{**values, **changes})


def closed_loop(
    latencies_s: Sequence[float], concurrency: int, *, tokens: int = 100, ttft_s: float = 0.01, **changes: Any
) -> list[RequestRow]:
    """Rows of an ideal closed loop: every slot takes the next prompt as soon as it is free; tokens arrive evenly."""
    free = [0.0] * concurrency
    rows = []
    for number, latency in enumerate(latencies_s):
        slot = int(np.argmin(free))
        sent = free[slot]
        free[slot] = sent + latency
        times = np.linspace(sent + ttft_s, sent + latency, tokens)
        values = {
            "prompt_id": f"p{number}",
            "sent_s": sent,
            "first_token_s": sent + ttft_s,
            "finished_s": sent + latency,
            "chunk_times_s": tuple(float(time) for time in times),
            "chunk_tokens": (1,) * tokens,
            "completion_tokens": tokens,
            "output_ids": VARIED_IDS[number : number + tokens],
            "verify_steps": None,
            "proposed_drafts": None,
            "correct_drafts": None,
            "histogram": None,
        }
        rows.append(row(**{**values, **changes}))
    return rows


def launch(**changes: Any) -> LaunchObservation:
    values: dict[str, Any] = {
        "command": ("python", "-m", "sglang.launch_server", "--model-path", "/models/my target", "--tp-size", "2"),
        "engine_version": "0.5.23",
        "accelerator": "cpu",
        "stand_in_kernels": True,
        "ready_s": 12.5,
        "pid": 4242,
        "port": 30000,
        "device_ids": (),
        "effective_args": {"max_running_requests": 48, "device": "cpu", "speculative_num_steps": 5},
    }
    return LaunchObservation(**{**values, **changes})


def config(layout: tuple[int, ...] | None = (0, 3, 7), triple: tuple[int, int, int] | None = (5, 1, 6), tp: int = 1):
    made = None if triple is None else Triple(num_steps=triple[0], eagle_topk=triple[1], num_draft_tokens=triple[2])
    return EngineConfig(layout=layout if made else None, triple=made, tp_size=tp)


def setting_of(effective: EngineConfig, layout: str | None = None) -> Setting | None:
    if effective.triple is None or effective.layout is None:
        return None
    triple = effective.triple
    return Setting(
        layout=layout or layout_label(effective.layout),
        num_steps=triple.num_steps,
        eagle_topk=triple.eagle_topk,
        num_draft_tokens=triple.num_draft_tokens,
        tp_size=effective.tp_size,
        flags=effective.flags,
    )


def summary(
    *, throughput: float = 100.0, accept_length: float | None = 2.5, concurrency: int = 1, **changes: Any
) -> CellSummary:
    """A summary with 1 % intervals around given values."""

    def around(value: float) -> Estimate:
        return Estimate(value=value, low=value * 0.99, high=value * 1.01, count=40)

    observation = cell([spec_row("p0", (11, 14, 11, 4, 0, 3), 6)], concurrency=concurrency)
    base = summarise_cell(observation, Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6))
    values: dict[str, Any] = {
        "accept_length": None if accept_length is None else around(accept_length),
        "output_throughput": around(throughput),
        "warnings": (),
        "not_ranked": (),
    }
    if accept_length is None:
        values |= {"acceptance_by_position": None, "histogram": None, "verify_steps": None, "draft_accept_length": None}
    return replace(base, **{**values, **changes})


def record(
    trial_id: str,
    effective: EngineConfig | None = None,
    *,
    cells: Sequence[CellSummary] = (),
    role: Role = "search",
    at_s: float = 1_800_000_000.0,
    failure: Failure | None = None,
    layout: str | None = None,
    **changes: Any,
) -> TrialRecord:
    effective = effective or config()
    values: dict[str, Any] = {
        "schema": RECORD_SCHEMA,
        "study": "demo",
        "trial_id": trial_id,
        "number": None,
        "attempt": 0,
        "retry_of": None,
        "role": role,
        "setting": setting_of(effective, layout),
        "effective": effective,
        "started_at_unix_s": at_s,
        "finished_at_unix_s": at_s + 60,
        "launch": launch(),
        "cells": tuple(replace(c, started_at_unix_s=at_s + 20) for c in cells),
        "failure": failure,
    }
    return TrialRecord(**{**values, **changes})
