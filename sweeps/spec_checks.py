"""What must hold between the keys of a spec; each problem with its key path."""

from __future__ import annotations

import math
from collections.abc import Iterator

from actors.engines.server_spec import OWNED_ARGS
from results.objective import CLOSED_LOOP_METRICS
from sweeps.spec_problems import Problem
from sweeps.spec_schema import SweepSpec

MAX_SETTINGS = 1_000_000
DIMENSIONS = ("layout", "num_steps", "eagle_topk", "num_draft_tokens", "tp_size")

OWNED = {**OWNED_ARGS, "host": "say `engine.host`", "port": "say `engine.port`, or let it be chosen to be free"}
"""SGLang flags that specsweep sets itself, and what to do instead."""


def problems_between(spec: SweepSpec) -> Iterator[Problem]:
    """Everything that is wrong although each key alone is right."""
    yield from _space(spec)
    yield from _flags(spec)
    yield from _engine(spec)
    yield from _endpoint(spec)
    yield from _objective(spec)
    yield from _search(spec)
    yield from _urls(spec)


def _space(spec: SweepSpec) -> Iterator[Problem]:
    if not spec.space.model_fields_set and spec.engine.kind == "sglang":
        yield ("space",), f"the space is empty; give at least one of {', '.join(DIMENSIONS)}, flags or catalog"
    sizes = [len(getattr(spec.space, name)) for name in DIMENSIONS]
    settings = math.prod([*sizes, *(len(values) for values in spec.space.flags.values())])
    if settings > MAX_SETTINGS:
        yield ("space",), f"the space has {settings} settings; at most {MAX_SETTINGS}"
    sizes_asked = [(("space", "tp_size"), max(spec.space.tp_size))]
    if spec.suspect is not None:
        sizes_asked.append((("suspect", "tp_size"), spec.suspect.tp_size))
    for path, size in sizes_asked:
        if spec.cluster.gpus is not None and size > spec.cluster.gpus:
            yield path, f"{size} is more than cluster.gpus allows ({spec.cluster.gpus})"


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
        for flag in sorted(flags & OWNED.keys()):
            yield (*place, flag), f"not allowed here; {OWNED[flag]}"


def _engine(spec: SweepSpec) -> Iterator[Problem]:
    engine = spec.engine
    if engine.start_method == "fork" and engine.device == "cuda":
        yield ("engine", "start_method"), "'fork' works on the CPU only (legal with device cuda: spawn)"
    if engine.port is not None and spec.cluster.max_parallel != 1:
        yield ("engine", "port"), f"{engine.port} can serve one server at a time; needs cluster.max_parallel: 1"


def _endpoint(spec: SweepSpec) -> Iterator[Problem]:
    """A running server is one setting: what would need another server is refused."""
    if spec.engine.kind != "endpoint":
        return
    for name in DIMENSIONS:
        values = getattr(spec.space, name)
        if len(values) > 1:
            yield ("space", name), f"{len(values)} values, but engine.kind: endpoint cannot change its server; give one"
    if spec.space.layout != ("shipped",):
        layouts = ", ".join(spec.space.layout_labels)
        yield (
            ("space", "layout"),
            f"{layouts}, but a running server feeds its draft what the draft's config says, and tells no layout;"
            " legal with engine.kind: endpoint: shipped",
        )
    if spec.space.flags:
        yield ("space", "flags"), "flags cannot be changed on a running server (engine.kind: endpoint)"
    if spec.suspect is not None:
        yield ("suspect",), "another setting cannot be measured on a running server (engine.kind: endpoint)"
    if spec.budget.repeats > 1 or spec.budget.baselines not in ("auto", 1):
        yield ("budget",), "repeats and baselines are launches, and engine.kind: endpoint launches nothing"


def _objective(spec: SweepSpec) -> Iterator[Problem]:
    objective, workload = spec.objective, spec.workload
    if objective.concurrency is not None and objective.concurrency not in workload.concurrency:
        legal = ", ".join(str(value) for value in workload.concurrency)
        yield ("objective", "concurrency"), f"{objective.concurrency} is not measured (workload.concurrency: {legal})"
    rate = objective.request_rate
    if rate is not None and rate not in workload.request_rate:
        legal = ", ".join(f"{value:g}" for value in workload.request_rate) or "none"
        yield ("objective", "request_rate"), f"{rate:g} is not measured (workload.request_rate: {legal})"
    if rate is not None and objective.concurrency is not None:
        yield ("objective", "request_rate"), "the objective is read at one load; keep this or objective.concurrency"
    if rate is not None and objective.metric in CLOSED_LOOP_METRICS:
        yield ("objective", "metric"), f"{objective.metric} is of a closed loop; legal at a request rate: the others"
    if "_ms_" in objective.metric and not workload.stream:
        yield ("objective", "metric"), f"{objective.metric} needs workload.stream: true"


def _search(spec: SweepSpec) -> Iterator[Problem]:
    """What a surface is good for: greedy answers of servers of our own, and the throughput that follows from it."""
    if spec.search.stop_at_gain is not None and spec.search.sampler not in ("surface", "auto"):
        yield ("search", "stop_at_gain"), f"nothing is predicted with sampler '{spec.search.sampler}'; needs surface"
    if spec.search.sampler != "surface":
        return
    path = ("search", "sampler")
    if spec.engine.kind != "sglang":
        yield path, "'surface' needs servers of our own (engine.kind: sglang); legal here: auto and the others"
    if spec.workload.temperature != 0:
        yield path, f"'surface' needs workload.temperature: 0, not {spec.workload.temperature:g}"
    if spec.objective.request_rate is not None:
        yield path, "'surface' predicts closed loops; it needs an objective at a concurrency, not at a request rate"
    elif not is_throughput(spec):
        yield path, f"'surface' maximizes a throughput, not {spec.objective.metric} ({spec.objective.goal})"


def is_throughput(spec: SweepSpec) -> bool:
    """Whether the objective is one that follows from accept length and round time: how much a closed loop gets done."""
    objective = spec.objective
    throughput = objective.metric in ("output_throughput", "steady_throughput") and objective.goal == "maximize"
    return throughput and objective.request_rate is None


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
