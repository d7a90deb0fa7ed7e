"""What must hold between the keys of a spec; each problem with its key path."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sweeps.spec_problems import Problem
from sweeps.spec_schema import SweepSpec

MAX_SETTINGS = 1_000_000
DIMENSIONS = ("layout", "num_steps", "eagle_topk", "num_draft_tokens", "tp_size")

OWNED_FLAGS = {
    "model_path": "target",
    "model": "target",
    "speculative_draft_model_path": "draft",
    "speculative_draft_model": "draft",
    "speculative_num_steps": "space.num_steps",
    "speculative_eagle_topk": "space.eagle_topk",
    "speculative_num_draft_tokens": "space.num_draft_tokens",
    "tp_size": "space.tp_size",
    "tensor_parallel_size": "space.tp_size",
    "decrypted_draft_config_file": "space.layout",
    "device": "engine.device",
    "host": "engine.host",
    "speculative_algorithm": "a draft (EAGLE3 is implied)",
    "port": "nothing; free ports are chosen",
    "nccl_port": "nothing; free ports are chosen",
    "base_gpu_id": "nothing; Ray assigns GPUs",
}
"""SGLang flags that specsweep sets itself, and the key to use in their place."""


def problems_between(spec: SweepSpec) -> Iterator[Problem]:
    """Everything that is wrong although each key alone is right."""
    yield from _space(spec)
    yield from _flags(spec)
    yield from _objective(spec)
    yield from _urls(spec)


def _space(spec: SweepSpec) -> Iterator[Problem]:
    if not spec.space.model_fields_set:
        yield ("space",), f"the space is empty; give at least one of {', '.join(DIMENSIONS)}, flags or catalog"
    sizes = [len(getattr(spec.space, name)) for name in DIMENSIONS]
    settings = math.prod([*sizes, *(len(values) for values in spec.space.flags.values())])
    if settings > MAX_SETTINGS:
        yield ("space",), f"the space has {settings} settings; at most {MAX_SETTINGS}"


def _flags(spec: SweepSpec) -> Iterator[Problem]:
    for flag in sorted(spec.space.flags.keys() & spec.engine.args.keys()):
        yield ("space", "flags", flag), "this flag is also fixed in engine.args; keep one of the two"
    suspect = spec.suspect.flags if spec.suspect else {}
    places = {
        ("space", "flags"): set(spec.space.flags),
        ("engine", "args"): set(spec.engine.args),
        ("suspect", "flags"): set(suspect),
    }
    for place, flags in places.items():
        for flag in sorted(flags & OWNED_FLAGS.keys()):
            yield (*place, flag), f"specsweep sets this flag itself; use {OWNED_FLAGS[flag]}"


def _objective(spec: SweepSpec) -> Iterator[Problem]:
    objective, workload = spec.objective, spec.workload
    if objective.concurrency is not None and objective.concurrency not in workload.concurrency:
        legal = ", ".join(str(value) for value in workload.concurrency)
        yield ("objective", "concurrency"), f"{objective.concurrency} is not measured (workload.concurrency: {legal})"
    if "_ms_" in objective.metric and not workload.stream:
        yield ("objective", "metric"), f"{objective.metric} needs workload.stream: true"


def _urls(spec: SweepSpec) -> Iterator[Problem]:
    storage, uri = spec.search.storage, spec.tracking.uri
    if storage is not None and "://" not in storage:
        yield ("search", "storage"), f"'{storage}' is not a URL such as sqlite:////absolute/study.db"
    for path, url in ((("search", "storage"), storage), (("tracking", "uri"), uri)):
        if url is not None and url.startswith("sqlite:") and not url.startswith("sqlite:////"):
            yield path, f"'{url}' is relative to wherever the driver runs; write sqlite:////absolute/file.db"
    if uri is not None and not uri.startswith(
        ("sqlite:", "http:", "https:", "postgresql", "mysql", "mssql", "databricks")
    ):
        yield (
            ("tracking", "uri"),
            (
                f"'{uri}' is not a tracking server or database; MLflow no longer keeps runs in plain files: "
                "write sqlite:////absolute/mlflow.db or http://host:port"
            ),
        )
