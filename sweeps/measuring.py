"""Measuring one server that runs already: no study, no Ray, no record; one honest row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.engines.effective import resolved_args
from actors.engines.endpoint import Endpoint, runs
from actors.load.measurement import measure_cell, never_dead, warm_up
from actors.load.prompts import PromptSet, choose_prompts
from actors.load.workload import Workload
from results.cells import summarise_cell
from results.failures import Failure
from results.summary import CellSummary
from search_spaces.config import Triple
from search_spaces.errors import InputError


@dataclass(frozen=True, kw_only=True)
class MeasureRequest:
    """What to send: a count of built-in prompts, a set, a file, a folder or `hf:DATASET`, and how."""

    endpoint: Endpoint
    prompts: int | str = 64
    count: int | None = None
    concurrency: int = 8
    max_new_tokens: int = 256
    temperature: float = 0.0
    ignore_eos: bool = False
    seed: int = 0
    half_width: float | None = 0.02
    request_timeout_s: float = 600.0


@dataclass(frozen=True, kw_only=True)
class MeasuredServer:
    """One cell of one server, with what the server says it runs. `notes` are limits of what was sent."""

    url: str
    server: dict[str, Any]
    workload: dict[str, Any]
    triple: Triple | None
    cell: CellSummary
    notes: tuple[str, ...]


def measure_server(asked: MeasureRequest) -> MeasuredServer | Failure:
    """Warm up, empty the prefix cache, measure once; blocks until done. Changes nothing else on the server.

    InputError for prompts that cannot be used; EnvironmentProblem when no SGLang server answers or its API key is
    missing or refused; a Failure when requests fail although it answered.
    """
    info = asked.endpoint.server_info()
    triple, tp_size = runs(info)
    chosen, notes = _prompts(asked, info)
    workload = _workload(asked, chosen)
    url = asked.endpoint.base_url
    failure = warm_up(url, workload)
    if failure is not None:
        return failure
    observed = measure_cell(url, workload, asked.concurrency, failure_now=never_dead, triple=triple)
    if isinstance(observed, Failure):
        return observed
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
            "ignore_eos": asked.ignore_eos,
        },
        triple=triple,
        cell=summarise_cell(observed, triple, server_args=args),
        notes=notes,
    )


def _prompts(asked: MeasureRequest, info: dict[str, Any]) -> tuple[PromptSet, tuple[str, ...]]:
    """Through the server's chat template where its model's folder is on this machine, as it is served, else as text."""
    path = info.get("tokenizer_path") or info.get("model_path")
    folder = Path(path) if isinstance(path, str) and Path(path).is_dir() else None
    source = asked.prompts
    chosen = choose_prompts(
        source if isinstance(source, int) or not Path(source).exists() else Path(source),
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
            concurrency=(asked.concurrency,),
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
