"""The spec's shape: what a sweep's YAML file may say, with types, limits, defaults and the reason for each key.

Values are frozen and complete: after validation nothing is left to guess but what depends on the machine (the device
`auto`, the number of slots). The JSON schema for editors is generated from these classes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from search_spaces.config import Flags, Setting, layout_label
from sweeps.spec_fields import (
    ArgValue,
    Count,
    CountOrNull,
    Counts,
    CountsOrNull,
    EnvName,
    EnvValue,
    FlagName,
    Layout,
    Layouts,
    LayoutValue,
    Prompts,
    StudyName,
    Swept,
    SweptValues,
    Version,
)

Seconds = Annotated[float, Field(gt=0)]
Whole = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]

Metric = Literal[
    "output_throughput",
    "steady_throughput",
    "accept_length",
    "ttft_ms_p50",
    "ttft_ms_p99",
    "tpot_ms_p50",
    "tpot_ms_p99",
]
Direction = Literal["maximize", "minimize"]
Sampler = Literal["tpe", "random", "grid", "brute_force", "qmc", "gp", "cmaes", "nsgaii", "nsgaiii"]


class Section(BaseModel):
    """A mapping of the spec: unknown keys refused, no conversions, no NaN, frozen."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )


class EngineSpec(Section):
    """How a server is started."""

    kind: Literal["sglang"] = "sglang"
    """What serves: an SGLang server, started and stopped by specsweep."""
    device: Literal["auto", "cuda", "cpu"] = "auto"
    """`auto` takes CUDA where the cluster has GPUs, else the CPU."""
    python: Text | None = None
    """The interpreter in which SGLang is installed; by default the one that runs specsweep."""
    sglang_version: Version | None = None
    """The version whose rules apply in `plan`; by default the installed one."""
    args: dict[FlagName, ArgValue] = {}
    """Further SGLang flags in snake_case, the same for every launch."""
    env: dict[EnvName, EnvValue] = {}
    """Environment variables of the server. Nothing else is inherited but a short allow-list."""
    start_method: Literal["spawn", "fork"] = "spawn"
    """`fork` starts servers faster on a CPU machine; never with CUDA."""
    host: Text = "127.0.0.1"
    """The address on which a server listens."""
    ready_timeout_s: Seconds = 1800.0
    """How long a server may take to answer its first request."""
    request_timeout_s: Seconds = 600.0
    """How long one request may take."""
    stop_timeout_s: Seconds = 30.0
    """How long a server may take to end before it is killed."""


class ClusterSpec(Section):
    """Where servers run."""

    address: Text | None = None
    """A Ray cluster; by default RAY_ADDRESS, else a Ray of our own on this machine."""
    gpus: Count | None = None
    """How many GPUs (CPU slots on a CPU machine) the sweep may hold; by default all that the cluster has."""
    max_parallel: Count | None = None
    """How many trials may run at the same time; by default as many as fit."""


class SpaceSpec(Section):
    """What is searched: the product of all values. A number dimension is a list or a range {low, high, step}."""

    catalog: Text | None = None
    """A ready space to start from; other keys here replace its keys."""
    layout: Layouts = ("shipped",)
    """Lists of taps, `default` (SGLang's own choice) or `shipped` (as the draft's config says)."""
    num_steps: CountsOrNull = (None,)
    """Values of --speculative-num-steps. null: left to SGLang, then for the other two as well."""
    eagle_topk: CountsOrNull = (None,)
    """Values of --speculative-eagle-topk."""
    num_draft_tokens: CountsOrNull = (None,)
    """Values of --speculative-num-draft-tokens, the root included."""
    tp_size: Counts = (1,)
    """Tensor-parallel sizes."""
    flags: dict[FlagName, SweptValues] = {}
    """Any further SGLang flag as a dimension."""

    @property
    def layout_labels(self) -> tuple[str, ...]:
        return tuple(label_of(layout) for layout in self.layout)


class SettingSpec(Section):
    """One setting, such as the one that is complained about."""

    layout: LayoutValue = "shipped"
    """A list of taps, `default` or `shipped`."""
    num_steps: CountOrNull = None
    """--speculative-num-steps."""
    eagle_topk: CountOrNull = None
    """--speculative-eagle-topk."""
    num_draft_tokens: CountOrNull = None
    """--speculative-num-draft-tokens."""
    tp_size: Count = 1
    """The tensor-parallel size."""
    flags: dict[FlagName, Swept] = {}
    """Further SGLang flags."""

    def to_setting(self) -> Setting:
        flags: Flags = tuple(sorted(self.flags.items()))
        return Setting(
            layout=label_of(self.layout),
            num_steps=self.num_steps,
            eagle_topk=self.eagle_topk,
            num_draft_tokens=self.num_draft_tokens,
            tp_size=self.tp_size,
            flags=flags,
        )


class WorkloadSpec(Section):
    """What is sent to a server."""

    prompts: Prompts = 64
    """A count of built-in prompts, or the path of a prompt file (relative to the spec)."""
    prompt_set: Text = "mixed"
    """Which built-in prompts."""
    max_prompts: Count | None = None
    """At most so many prompts of the file, chosen by the seed."""
    concurrency: Counts = (1, 8)
    """Requests in flight; every value is one measurement of each launch."""
    max_new_tokens: Count = 256
    """Tokens generated per request."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """Sampling temperature; 0 is greedy."""
    seed: Whole = 0
    """Chooses and orders prompts."""
    warmup_prompts: Count = 4
    """Prompts sent before measuring; never among the measured ones."""
    ignore_eos: bool = False
    """Generate max_new_tokens whatever the model says."""
    stream: bool = True
    """Stream the answers; needed for latencies."""
    max_attempts: Count = 2
    """Tries per request; every retry is counted."""


class ObjectiveSpec(Section):
    """What is best."""

    metric: Metric = "output_throughput"
    """The number that ranks trials."""
    concurrency: Count | None = None
    """The concurrency at which it is read; by default the first of the workload."""
    direction: Direction | None = None
    """By default `minimize` for latencies, else `maximize`."""

    @property
    def goal(self) -> Direction:
        return self.direction or ("minimize" if "_ms_" in self.metric else "maximize")


class BudgetSpec(Section):
    """When to stop. Whatever comes first; by default when every distinct setting has been measured."""

    trials: Count | None = None
    """Trials of the search, answered ones included."""
    launches: Count | None = None
    """Server starts, baselines and retries included."""
    wall_time_s: Seconds | None = None
    """Seconds after which no trial starts."""
    repeats: Count = 1
    """Launches of each distinct setting."""
    retries: Whole = 2
    """How often a trial is run again after trouble that its setting did not cause."""


class SearchSpec(Section):
    """How the next setting is chosen."""

    sampler: Sampler = "tpe"
    """An Optuna sampler."""
    seed: Whole = 0
    """Seed of the sampler."""
    storage: Text | None = None
    """Optuna storage URL; by default SQLite in the study's folder."""


class TrackingSpec(Section):
    """The MLflow view, which can be rebuilt from the records at any time."""

    enabled: bool = True
    """Write the view while the sweep runs."""
    uri: Text | None = None
    """MLflow tracking URI; by default SQLite in the home of all studies."""
    experiment: Text | None = None
    """MLflow experiment; by default the study's name."""


class SweepSpec(Section):
    """One sweep. Only target, draft and space are needed."""

    study: StudyName
    """The study's name; by default the file's."""
    target: Text
    """The served model: a folder (relative to the spec) or a Hugging Face repo id in the local cache."""
    draft: Text
    """Its EAGLE-3 draft: a folder (relative to the spec) or a Hugging Face repo id in the local cache."""
    engine: EngineSpec = EngineSpec()
    cluster: ClusterSpec = ClusterSpec()
    space: SpaceSpec
    suspect: SettingSpec | None = None
    """The setting that disappoints; always measured."""
    workload: WorkloadSpec = WorkloadSpec()
    objective: ObjectiveSpec = ObjectiveSpec()
    budget: BudgetSpec = BudgetSpec()
    search: SearchSpec = SearchSpec()
    tracking: TrackingSpec = TrackingSpec()

    @property
    def objective_concurrency(self) -> int:
        return self.objective.concurrency or self.workload.concurrency[0]


def label_of(layout: Layout) -> str:
    """The label under which a layout value is stored: `default`, `shipped` or taps such as `0,3,7`."""
    return layout if isinstance(layout, str) else layout_label(layout)
