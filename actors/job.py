"""What the driver sends to a GPU group and what comes back: plain values, picklable, no handles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from actors.load.workload import Workload
from results.failures import Failure
from results.feed import FeedCapture
from results.observations import CellObservation, LaunchObservation, server_starts
from results.stopping import Rival
from results.trace_segments import TracedFiles
from search_spaces.config import EngineConfig


@dataclass(frozen=True, kw_only=True)
class TraceTask:
    """How a job's prompts are traced, `concurrency` at a time and at most `max_bytes` of pools.

    `workload_id` is the whole workload's, of which the job has a part. `vocabulary` bounds the token ids, `end_ids` end
    an answer, `expected` are output ids by prompt id as far as they are known.
    """

    workload_id: str
    concurrency: int
    vocabulary: int
    end_ids: frozenset[int]
    max_bytes: int
    expected: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class TrialJob:
    """One trial to run: bring the engine into `config`, warm up, then measure every concurrency of the workload.

    `fresh` asks for a launch of its own, with room for nothing else, whatever runs already. A trial that is only to be
    better than the `rival` ends its cell at that concurrency once it clearly is not. With `probe_tokens` nothing is
    measured: what the draft is fed is recorded on every rank, for at most so many tokens of the shortest prompts.
    With `trace` nothing is measured either: the draft's candidate pools are logged for every prompt of the workload.
    """

    trial_id: str
    config: EngineConfig
    workload: Workload
    fresh: bool = False
    rival: Rival | None = None
    probe_tokens: int | None = None
    trace: TraceTask | None = None


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """What one trial gave. Failure is a value here: nothing is raised across the actor boundary.

    Cells measured before a failure are kept. `server_log` is bounded (its end). `feeds` are a probe's, by rank,
    `traced` what a trace has finished. `warm_up_s` is how long the requests before the first cell took, `ended_s` how
    long servers took to end that had no further use.
    """

    trial_id: str
    started_at_unix_s: float
    finished_at_unix_s: float
    launch: LaunchObservation | None
    cells: tuple[CellObservation, ...]
    failure: Failure | None
    server_log: str = field(repr=False)
    findings: tuple[str, ...] = ()
    warm_up_s: float | None = None
    ended_s: float = 0.0
    feeds: tuple[FeedCapture, ...] = field(default=(), repr=False)
    traced: TracedFiles | None = field(default=None, repr=False)

    @property
    def server_starts(self) -> int | None:
        """How many servers were started for it; None when nobody noted it."""
        return server_starts(self.launch, self.failure)
