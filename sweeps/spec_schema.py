"""The spec's shape: what a sweep's YAML file may say, with types, limits, defaults and the reason for each key.

Values are frozen and complete: after validation nothing is left to guess but what depends on the machine (the device
`auto`, the number of slots). The JSON schema for editors is generated from `SweepSpec`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from results.objective import Goal, Metric
from sweeps.budget import Budget
from sweeps.spec_engine import EngineSpec, SglangSpec
from sweeps.spec_fields import Count, CountOrAuto, Counts, Prompts, RateOrNull, Rates, StudyName
from sweeps.spec_section import Seconds, Section, Text
from sweeps.spec_space import SettingSpec, SpaceSpec

Whole = Annotated[int, Field(ge=0)]
Gain = Annotated[float, Field(gt=0, lt=1)]
HalfWidth = Annotated[float, Field(gt=0, lt=1)]

Sampler = Literal["auto", "surface", "tpe", "random", "grid", "brute_force", "qmc", "gp", "cmaes", "nsgaii", "nsgaiii"]


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


class WorkloadSpec(Section):
    """What is sent to a server."""

    prompts: Prompts = Field(
        64,
        description="A count of built-in prompts, a built-in set (chat, code, mathematics), a .jsonl or .json file, a "
        "folder of .txt files (paths relative to the spec), or hf:DATASET, hf:DATASET:SPLIT, hf:DATASET:CONFIG:SPLIT "
        "(needs the package `datasets`).",
    )
    count: Count | None = Field(
        None, description="How many prompts of a set, file, folder or dataset, chosen by the seed; by default all."
    )
    text_field: Text = Field(
        "text",
        description="The key of a row's prompt. A row of a file or dataset is an object with this key (the text is "
        "sent as it is), `messages` (objects with role and content; the chat template is applied) or ShareGPT's "
        "`conversations` (the first user's turn, sent as it is); the first of these that is there counts.",
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
    launches: Count | None = Field(
        None,
        description="Server starts; baselines, retries, traces and servers that came to nothing included. A trial "
        "whose servers fail may take up to four more.",
    )
    wall_time_s: Seconds | None = Field(None, description="Seconds after which no trial starts.")
    repeats: Count = Field(1, description="Launches of each distinct setting.")
    baselines: CountOrAuto = Field(
        "auto",
        description="Launches of each baseline, from the study's start to its end: three or more test for drift. "
        "`auto`: three where the budget leaves at least eight trials, each counted as a launch, for each baseline "
        "beside them, else one; `plan` shows it.",
    )
    confirmations: Whole = Field(
        1,
        description="Fresh launches of the winner before it is announced: the best of many noisy numbers is too good.",
    )
    retries: Whole = Field(
        2, description="How often a trial is run again after trouble that its setting did not cause."
    )

    @property
    def limits(self) -> Budget:
        """What ends the study early."""
        return Budget(trials=self.trials, launches=self.launches, wall_time_s=self.wall_time_s)


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
        True,
        description="With a suspect: end the sweep with what costs it accept length (config, layout, parallelism). "
        "After `budget.launches` or `budget.wall_time_s` nothing more is started for that: what is missing stays "
        "undecided, and `specsweep isolate STUDY` measures it.",
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
