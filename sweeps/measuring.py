"""Measuring one server that runs already: no study, no Ray, no record; one row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.engines.effective import resolved_args
from actors.engines.endpoint import Endpoint, runs
from actors.load.measurement import measure_cells, never_dead, warm_up
from actors.load.prompts import PromptSet, choose_prompts
from actors.load.workload import Workload
from results.cells import summarise_cell
from results.failures import Failure
from results.summary import CellSummary
from search_spaces.config import Triple
from search_spaces.errors import InputError
from search_spaces.typed_paths import is_there


@dataclass(frozen=True, kw_only=True)
class MeasureRequest:
    """What to send: a count of built-in prompts, a set, a file, a folder or `hf:DATASET`, and how.

    Every concurrency (closed loop) and every request rate (open loop, per second) is one row. `seed` chooses and orders
    the prompts and draws the arrivals. ValueError when nothing is asked, a load twice, or a number is out of range.
    """

    endpoint: Endpoint
    prompts: int | str = 64
    count: int | None = None
    concurrency: tuple[int, ...] = (8,)
    request_rate: tuple[float, ...] = ()
    max_new_tokens: int = 256
    temperature: float = 0.0
    ignore_eos: bool = False
    seed: int = 0
    half_width: float | None = 0.02
    request_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        for name, loads in (("concurrency", self.concurrency), ("request rate", self.request_rate)):
            for load in loads:
                if not (math.isfinite(load) and load > 0):
                    raise ValueError(f"{name} {load:g} is not above 0")
                if loads.count(load) > 1:
                    raise ValueError(f"{name} {load:g} is asked twice")
        if not self.concurrency and not self.request_rate:
            raise ValueError("neither a concurrency nor a request rate is asked")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature {self.temperature:g} is not a number of 0 or more")


@dataclass(frozen=True, kw_only=True)
class MeasuredServer:
    """One cell for each load of one server, with what the server says it runs. `notes` are limits of what was sent.

    `failure` is what ended it before the last load; the cells before it are kept, and there is at least one.
    """

    url: str
    server: dict[str, Any]
    workload: dict[str, Any]
    triple: Triple | None
    cells: tuple[CellSummary, ...]
    notes: tuple[str, ...]
    failure: Failure | None = None


def measure_server(asked: MeasureRequest) -> MeasuredServer | Failure:
    """Warm up; then for every load, concurrencies first: empty the prefix cache and measure once. Blocks until done.

    Changes nothing else on the server. InputError for prompts that cannot be used; EnvironmentProblem when no SGLang
    server answers or its API key is missing or refused; a Failure when it answers no load although it is there.
    """
    info = asked.endpoint.server_info()
    triple, tp_size = runs(info)
    chosen, notes = _prompts(asked, info)
    workload = _workload(asked, chosen)
    url = asked.endpoint.base_url
    failure = warm_up(url, workload)
    if failure is not None:
        return failure
    observed, failure = measure_cells(url, workload, failure_now=never_dead, triple=triple)
    if failure is not None and not observed:
        return failure
    args = resolved_args(info)
    return MeasuredServer(
        url=url,
        server={
            "sglang_version": info.get("version"),
            "model_path": info.get("model_path"),
            "draft_model_path": info.get("speculative_draft_model_path"),
            "speculative_algorithm": info.get("speculative_algorithm"),
            "num_steps": triple and triple.num_steps,
            "eagle_topk": triple and triple.eagle_topk,
            "num_draft_tokens": triple and triple.num_draft_tokens,
            "tp_size": tp_size,
            "max_running_requests": info.get("max_running_requests"),
            "disable_radix_cache": info.get("disable_radix_cache"),
        },
        workload={
            "id": workload.workload_id,
            "prompts": chosen.source,
            "template": workload.template_hash,
            "max_new_tokens": asked.max_new_tokens,
            "temperature": asked.temperature,
            "seed": asked.seed,
            "ignore_eos": asked.ignore_eos,
        },
        triple=triple,
        cells=tuple(summarise_cell(cell, triple, server_args=args) for cell in observed),
        notes=notes,
        failure=failure,
    )


def _prompts(asked: MeasureRequest, info: dict[str, Any]) -> tuple[PromptSet, tuple[str, ...]]:
    """Through the server's chat template where its model's folder is on this machine, as it is served, else as text."""
    path = info.get("tokenizer_path") or info.get("model_path")
    folder = Path(path) if isinstance(path, str) and Path(path).is_dir() else None
    source = asked.prompts
    chosen = choose_prompts(
        source if isinstance(source, int) or not is_there(Path(source)) else Path(source),
        seed=asked.seed,
        count=asked.count,
        target_path=folder,
    )
    if chosen.template_hash is None:
        return chosen, ("the prompts are sent as plain text, without a chat template",)
    return chosen, ()


def _workload(asked: MeasureRequest, chosen: PromptSet) -> Workload:
    try:
        return Workload(
            prompts=chosen.prompts,
            warmup=chosen.warmup,
            concurrency=asked.concurrency,
            request_rate=asked.request_rate,
            arrival_seed=asked.seed,
            max_new_tokens=asked.max_new_tokens,
            temperature=asked.temperature,
            ignore_eos=asked.ignore_eos,
            stream=True,
            request_timeout_s=asked.request_timeout_s,
            max_attempts=2,
            template_hash=chosen.template_hash,
            api_key_env=asked.endpoint.api_key_env,
            half_width=asked.half_width,
        )
    except ValueError as problem:
        raise InputError(str(problem)) from problem
