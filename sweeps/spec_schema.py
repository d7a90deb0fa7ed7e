"""The spec's shape: what a sweep's YAML file may say, with types, limits, defaults and the reason for each key.

Values are frozen and complete: after validation nothing is left to guess but what depends on the machine (the device
`auto`, the number of slots). The JSON schema for editors is generated from these classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from results.objective import Goal, Metric
from search_spaces.config import Flags, FlagValue, Setting, layout_label
from sweeps.spec_fields import (
    Count,
    CountOrAuto,
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
    RateOrNull,
    Rates,
    StudyName,
    Swept,
    SweptValues,
    Url,
    Version,
)

Seconds = Annotated[float, Field(gt=0)]
Whole = Annotated[int, Field(ge=0)]
Port = Annotated[int, Field(ge=1, le=65535)]
Gain = Annotated[float, Field(gt=0, lt=1)]
HalfWidth = Annotated[float, Field(gt=0, lt=1)]
Text = Annotated[str, Field(min_length=1)]

Sampler = Literal["auto", "surface", "tpe", "random", "grid", "brute_force", "qmc", "gp", "cmaes", "nsgaii", "nsgaiii"]


class Section(BaseModel):
    """A mapping of the spec: unknown keys refused, no conversions, no NaN, frozen."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


class SglangSpec(Section):
    """How a server is started: an SGLang server that specsweep starts and stops."""

    kind: Literal["sglang"] = Field("sglang", description="What serves; `endpoint` has keys of its own, see below.")
    device: Literal["auto", "cuda", "cpu"] = Field(
        "auto", description="`auto` takes CUDA where the cluster has GPUs, else the CPU."
    )
    python: Text | None = Field(
        None, description="The interpreter in which SGLang is installed; by default the one that runs specsweep."
    )
    sglang_version: Version | None = Field(
        None, description="The version whose rules apply in `plan`; by default the installed one."
    )
    args: dict[FlagName, Swept] = Field(
        {}, description="Further SGLang flags in snake_case, the same for every launch."
    )
    env: dict[EnvName, EnvValue] = Field(
        {}, description="Environment variables of the server. Nothing else is inherited but a short allow-list."
    )
    start_method: Literal["spawn", "fork"] = Field(
        "spawn", description="`fork` starts servers faster on the CPU (`device: cpu`); never with CUDA."
    )
    host: Text = Field("127.0.0.1", description="The address on which a server listens.")
    port: Port | None = Field(
        None, description="A fixed port for the server, one at a time; by default free ones are chosen."
    )
    ready_timeout_s: Seconds = Field(1800.0, description="How long a server may take to answer its first request.")
    request_timeout_s: Seconds = Field(600.0, description="How long one request may take.")
    stop_grace_s: Seconds = Field(5.0, description="How long a server may take to end before it is killed.")
    switching: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether a running server changes its layout and triple without a launch. `auto`: where it was seen"
        " to give the same results, on CPU servers; the winner is measured on a fresh launch in any case.",
    )
    api_key_env: ClassVar[None] = None
    allow_simulated: bool = Field(
        False, description="Let SGLANG_SIMULATE_ACC_LEN replace real acceptance; every result then says so."
    )


class EndpointSpec(Section):
    """A server that is already running. It is measured, never started, stopped or changed.

    Its triple and TP size are read from it; a space that names others is refused. There is no baseline to compare with.
    """

    kind: Literal["endpoint"] = Field(description="What serves: somebody else's server.")
    url: Url = Field(description="The server's root, such as http://127.0.0.1:30000.")
    api_key_env: EnvName | None = Field(
        None, description="The environment variable, where the measuring runs, that holds the server's API key."
    )
    sglang_version: Version | None = Field(
        None, description="The version whose rules apply; by default the one that the server tells."
    )
    request_timeout_s: Seconds = Field(600.0, description="How long one request may take.")

    # What only a server of our own has, for readers of either kind.
    device: ClassVar[Literal["cpu"]] = "cpu"
    python: ClassVar[None] = None
    args: ClassVar[Mapping[str, FlagValue]] = MappingProxyType({})
    env: ClassVar[Mapping[str, str]] = MappingProxyType({})
    start_method: ClassVar[Literal["spawn"]] = "spawn"
    host: ClassVar[str] = "127.0.0.1"
    port: ClassVar[None] = None
    ready_timeout_s: ClassVar[float] = 0.0
    stop_grace_s: ClassVar[float] = 0.0
    switching: ClassVar[Literal["off"]] = "off"
    allow_simulated: ClassVar[bool] = False


ENGINES: Mapping[str, type[Section]] = MappingProxyType({"sglang": SglangSpec, "endpoint": EndpointSpec})


def _engine_kind(value: Any) -> object:
    return value.get("kind", "sglang") if isinstance(value, dict) else getattr(value, "kind", "sglang")


EngineSpec = Annotated[
    Annotated[SglangSpec, Tag("sglang")] | Annotated[EndpointSpec, Tag("endpoint")], Discriminator(_engine_kind)
]


class ClusterSpec(Section):
    """Where servers run."""

    address: Text | None = Field(
        None, description="A Ray cluster; by default RAY_ADDRESS, else a Ray of our own on this machine."
    )
    gpus: Count | None = Field(
        None,
        description="GPUs (CPU slots on a CPU machine) the sweep may hold; by default all that the cluster has.",
    )
    max_parallel: Count | None = Field(
        None, description="How many trials may run at the same time; by default as many as fit."
    )


class SpaceSpec(Section):
    """What is searched: the product of all values. A number dimension is a list or a range {low, high, step}."""

    catalog: Text | None = Field(None, description="A ready space to start from; other keys here replace its keys.")
    layout: Layouts = Field(
        ("shipped",),
        description="Lists of taps, `default` (SGLang's own choice) or `shipped` (as the draft's config says).",
    )
    num_steps: CountsOrNull = Field(
        (None,), description="Values of --speculative-num-steps. null: left to SGLang, then for the other two as well."
    )
    eagle_topk: CountsOrNull = Field((None,), description="Values of --speculative-eagle-topk.")
    num_draft_tokens: CountsOrNull = Field(
        (None,), description="Values of --speculative-num-draft-tokens, the root included."
    )
    tp_size: Counts = Field((1,), description="Tensor-parallel sizes.")
    flags: dict[FlagName, SweptValues] = Field({}, description="Any further SGLang flag as a dimension.")

    @property
    def layout_labels(self) -> tuple[str, ...]:
        return tuple(label_of(layout) for layout in self.layout)


class SettingSpec(Section):
    """One setting, such as the one that is complained about."""

    layout: LayoutValue = Field("shipped", description="A list of taps, `default` or `shipped`.")
    num_steps: CountOrNull = Field(None, description="--speculative-num-steps.")
    eagle_topk: CountOrNull = Field(None, description="--speculative-eagle-topk.")
    num_draft_tokens: CountOrNull = Field(None, description="--speculative-num-draft-tokens.")
    tp_size: Count = Field(1, description="The tensor-parallel size.")
    flags: dict[FlagName, Swept] = Field({}, description="Further SGLang flags.")

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

    prompts: Prompts = Field(
        64,
        description="A count of built-in prompts, a built-in set (chat, code, mathematics), a .jsonl or .json file, a "
        "folder of .txt files (paths relative to the spec), or hf:DATASET, hf:DATASET:SPLIT, hf:DATASET:CONFIG:SPLIT.",
    )
    count: Count | None = Field(
        None, description="How many prompts of a set, file, folder or dataset, chosen by the seed; by default all."
    )
    text_field: Text = Field(
        "text", description="The field of a file's objects that holds the prompt, where there are no messages."
    )
    min_prompt_tokens: Count | None = Field(None, description="Leave out shorter prompts (in the target's tokens).")
    max_prompt_tokens: Count | None = Field(None, description="Leave out longer prompts (in the target's tokens).")
    concurrency: Counts = Field(
        (1, 8), description="Requests in flight (closed loop); every value is one measurement of each launch."
    )
    request_rate: Rates = Field(
        (), description="Requests per second with Poisson arrivals (open loop); every value is one more measurement."
    )
    max_new_tokens: Count = Field(256, description="Tokens generated per request.")
    temperature: Annotated[float, Field(ge=0)] = Field(0.0, description="Sampling temperature; 0 is greedy.")
    seed: Whole = Field(0, description="Chooses and orders prompts.")
    warmup_prompts: Count = Field(4, description="Prompts sent before measuring; never among the measured ones.")
    ignore_eos: bool = Field(False, description="Generate max_new_tokens whatever the model says.")
    stream: bool = Field(True, description="Stream the answers; needed for latencies.")
    max_attempts: Count = Field(2, description="Tries per request; every retry is counted.")
    half_width: HalfWidth | None = Field(
        0.02,
        description="A closed-loop measurement ends before its last prompt once the 95 % intervals of throughput and "
        "accept length are this narrow, relative to the value, or once it is clearly slower than the best setting so "
        "far. null: every prompt is always sent.",
    )
    min_prompts: Annotated[int, Field(ge=2)] = Field(
        16, description="Prompts before it may end early; for narrow intervals 32 at least."
    )


class ObjectiveSpec(Section):
    """What is best."""

    metric: Metric = Field("output_throughput", description="The number that ranks trials.")
    concurrency: Count | None = Field(
        None, description="The concurrency at which it is read; by default the first of the workload."
    )
    request_rate: RateOrNull = Field(
        None,
        description="Or the request rate at which it is read, one of the workload's. A throughput then says little: it "
        "is what arrives, unless the server is too slow.",
    )
    direction: Goal | None = Field(None, description="By default `minimize` for latencies, else `maximize`.")

    @property
    def goal(self) -> Goal:
        return self.direction or ("minimize" if "_ms_" in self.metric else "maximize")


class BudgetSpec(Section):
    """When to stop. Whatever comes first; by default when every distinct setting has been measured."""

    trials: Count | None = Field(None, description="Trials of the search, answered ones included.")
    launches: Count | None = Field(None, description="Server starts; baselines, retries and traces included.")
    wall_time_s: Seconds | None = Field(None, description="Seconds after which no trial starts.")
    repeats: Count = Field(1, description="Launches of each distinct setting.")
    baselines: CountOrAuto = Field(
        "auto",
        description="Launches of each baseline, from the study's start to its end: three or more test for drift. "
        "`auto`: three where the study measures at least eight trials for each baseline, else one; `plan` shows it.",
    )
    confirmations: Whole = Field(
        1,
        description="Fresh launches of the winner before it is announced: the best of many noisy numbers is too good.",
    )
    retries: Whole = Field(
        2, description="How often a trial is run again after trouble that its setting did not cause."
    )


class SearchSpec(Section):
    """How the next setting is chosen."""

    sampler: Sampler = Field(
        "tpe",
        description="An Optuna sampler. `surface` traces the draft on one server first and proposes what is predicted"
        " to win; `auto` is `surface` where servers are switched, the temperature is 0 and the objective is a"
        " throughput, else `tpe`.",
    )
    stop_at_gain: Gain | None = Field(
        None,
        description="With `surface`: end the search once no setting left is expected to be better than the best by more"
        " than this, relative. null: measure whatever the budget allows.",
    )
    seed: Whole = Field(0, description="Seed of the sampler.")
    storage: Text | None = Field(None, description="Optuna storage URL; by default SQLite in the study's folder.")


class TrackingSpec(Section):
    """The MLflow view, which can be rebuilt from the records at any time."""

    enabled: bool = Field(True, description="Write the view while the sweep runs.")
    uri: Text | None = Field(None, description="MLflow tracking URI; by default SQLite in the home of all studies.")
    experiment: Text | None = Field(None, description="MLflow experiment; by default the study's name.")


class SweepSpec(Section):
    """One sweep. Only target, draft and space are needed."""

    study: StudyName = Field(description="The study's name; by default the file's.")
    target: Text = Field(
        description="The served model: a folder (relative to the spec) or a Hugging Face repo id in the local cache."
    )
    draft: Text = Field(
        description="Its EAGLE-3 draft: a folder (relative to the spec) or a Hugging Face repo id in the local cache."
    )
    engine: EngineSpec = Field(
        SglangSpec(), description="What serves, by `kind`: servers of our own, or a running one."
    )
    cluster: ClusterSpec = ClusterSpec()
    space: SpaceSpec
    suspect: SettingSpec | None = Field(None, description="The setting that disappoints; always measured.")
    isolate: bool = Field(
        True, description="With a suspect: end the sweep with what makes it slow (config, layout, parallelism)."
    )
    workload: WorkloadSpec = WorkloadSpec()
    objective: ObjectiveSpec = ObjectiveSpec()
    budget: BudgetSpec = BudgetSpec()
    search: SearchSpec = SearchSpec()
    tracking: TrackingSpec = TrackingSpec()

    @property
    def objective_concurrency(self) -> int:
        """The closed loop that stands for the study where one is needed, whatever load the objective is read at."""
        return self.objective.concurrency or self.workload.concurrency[0]


def label_of(layout: Layout) -> str:
    """The label under which a layout value is stored: `default`, `shipped` or taps such as `0,3,7`."""
    return layout if isinstance(layout, str) else layout_label(layout)
