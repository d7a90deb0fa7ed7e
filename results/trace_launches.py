"""What the traces of a study cost: every job that was begun, and whether it loaded weights. Survives any death.

A trace has no record of its own. So a job is noted before it begins and again when it is over; one that was never over,
because its driver died or was told to stop, still counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from results.durable_files import replace_file
from search_spaces.errors import EnvironmentProblem, InputError

LAUNCHES_FILE = "launches.json"
LAUNCHES_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class TraceLaunch:
    """One job. While it is not `ended`, `weights_loaded` is what is expected, and `elapsed_s` is 0.

    `extra_starts` are servers beyond one that were started for it and came to nothing.
    """

    job: str
    begun_at_unix_s: float
    weights_loaded: bool
    ended: bool = False
    elapsed_s: float = 0.0
    extra_starts: int = 0


@dataclass(frozen=True, kw_only=True)
class TraceLaunches:
    """All jobs of a study's traces, in the order in which they were begun, over all sessions."""

    jobs: tuple[TraceLaunch, ...] = ()

    @property
    def weight_loads(self) -> int:
        """Servers that were started for traces."""
        return sum(job.weights_loaded + job.extra_starts for job in self.jobs)

    @property
    def elapsed_s(self) -> float:
        """Seconds in jobs that came to their end."""
        return sum(job.elapsed_s for job in self.jobs)


def read_trace_launches(traces: Path) -> TraceLaunches:
    """What the traces in this folder cost so far. InputError for a damaged file."""
    path = traces / LAUNCHES_FILE
    try:
        content = json.loads(path.read_bytes())
        if content["schema"] != LAUNCHES_SCHEMA:
            raise InputError(f"{path}: schema {content['schema']} is unknown; legal: {LAUNCHES_SCHEMA}")
        return TraceLaunches(jobs=tuple(TraceLaunch(**row) for row in content["jobs"]))
    except FileNotFoundError:
        return TraceLaunches()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: damaged: {error}") from None


class TraceJournal:
    """Notes the jobs of one session, one at a time. Only the holder of the study's lock may have one."""

    def __init__(self, traces: Path, clock: Callable[[], float] = time.time) -> None:
        """InputError for a damaged file."""
        self._traces, self._clock = traces, clock
        self._launches = read_trace_launches(traces)
        self._before = self._launches.weight_loads
        self._running: tuple[Hashable, Hashable] | None = None  # the kind of server that runs, and its last setting
        self._switches = True  # as far as the jobs of this session showed

    @property
    def weight_loads(self) -> int:
        """Those of this session."""
        return self._launches.weight_loads - self._before

    def needs_server(self, kind: Hashable, setting: Hashable) -> bool:
        """Whether a job, as `begin` has it, may start a server: none runs that it surely goes on with. Once a job took
        more servers than it was to, a server of its kind is no longer expected to have room for other settings."""
        if self._running is None:
            return True
        return self._running[0] != kind if self._switches else self._running != (kind, setting)

    def begin(self, job: str, kind: Hashable, setting: Hashable) -> None:
        """A job is about to begin; on the disk before this returns. `kind` is equal for jobs that one server can run
        after each other where it has room for both, `setting` for those of one trace. EnvironmentProblem when the disk
        refuses."""
        loads = self.needs_server(kind, setting)
        self._running = kind, setting
        began = TraceLaunch(job=job, begun_at_unix_s=self._clock(), weights_loaded=loads)
        self._keep(TraceLaunches(jobs=(*self._launches.jobs, began)))

    def withdraw(self) -> None:
        """The job that was begun last never got a server."""
        self._running = None
        self._keep(TraceLaunches(jobs=self._launches.jobs[:-1]))

    def end(self, *, server_starts: int | None, failed: bool) -> None:
        """The job that was begun last is over; after a failure its server is ended. None: nobody can tell, and what was
        expected counts."""
        *before, last = self._launches.jobs
        starts = last.weights_loaded if server_starts is None else server_starts
        elapsed_s = round(max(0.0, self._clock() - last.begun_at_unix_s), 3)
        ended = replace(
            last, weights_loaded=starts > 0, extra_starts=max(0, starts - 1), ended=True, elapsed_s=elapsed_s
        )
        if starts > last.weights_loaded and not failed:
            self._switches = False
        if failed:
            self._running = None
        self._keep(TraceLaunches(jobs=(*before, ended)))

    def _keep(self, launches: TraceLaunches) -> None:
        self._launches = launches
        rows = ",\n ".join(json.dumps(asdict(job)) for job in launches.jobs)
        content = f'{{"schema": {LAUNCHES_SCHEMA}, "jobs": [\n {rows}\n]}}\n'
        try:
            self._traces.mkdir(parents=True, exist_ok=True)
            replace_file(self._traces / LAUNCHES_FILE, content.encode())
        except OSError as error:
            raise EnvironmentProblem(f"{self._traces}: cannot be written: {error.strerror or error}") from None
