"""What the demo costs beside its SGLang servers: the share of a trial's time that is ours, and memory.

    python benchmarks/orchestration.py [--spec sweeps/specs/demo.yaml] [--out benchmarks/results/orchestration.json]

Runs the demo as a user does, in a home of its own, and samples memory every second. Limits: 5 % and 1.5 GB.

**Time** is read from the records. Of a trial's wall time (`started_at_unix_s` to `finished_at_unix_s`, in the group's
actor) the engine's is: the launch, from the decision to the server's first answer (`launch.ready_s`, only where the
trial loaded weights; it includes the end of the server before), or the switch (`launch.switch_s`); the end of servers
that have no further use (`ended_s`); the warm-up's requests (`warm_up_s`); and every cell from its first request to
its last answer (`duration_s`). The rest is ours: flushing and asking counters around a cell, reading logs, writing
control files. That is strict: of some 0.75 s in a trial at (5,1,6), SGLang takes 0.6 to answer the two `/flush_cache`
(0.006 at (1,1,2)), seen by timing every call on an idle machine. Ours is also the gap to the trial before it on the
same group, in which the driver writes the record, tells the study and MLflow, asks, and sends the next trial. The
demo runs one server at a time, so consecutive trials of one TP size are on one group. What lies between two groups
(the old server's end, a new actor, its imports) is listed apart, as are start-up and report. So is the time of
traces, which are no trials: it is taken out of the gap in which the last trace was written.

**Memory** is proportional set size (PSS, `/proc/PID/smaps_rollup`), of the driver and the GPU-group actors together;
Ray's own processes and the servers with their guards are listed apart.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from actors.engines.guarded_process import find_leftovers
from benchmarks.result_file import write_result
from results.records import TrialRecord
from results.search_notes import read_notes
from results.store import StudyFolder
from results.study_surface import traces_path
from sweeps.groups import sweep_id

ROOT = Path(__file__).resolve().parent.parent
SHARE_LIMIT, MEMORY_LIMIT_MIB = 0.05, 1.5e9 / 2**20
INTERVAL_S = 1.0

Part = Literal["driver", "actors", "ray", "servers"]


@dataclass(frozen=True, kw_only=True)
class Traced:
    """The traces of a study: how long they took, and when the last was written."""

    seconds: float
    ended_at_unix_s: float


def account(records: Sequence[TrialRecord], traced: Traced | None = None) -> dict[str, Any]:
    """Where the time of consecutive trials went, as the module's text defines it."""
    rows, between = [], []
    before: TrialRecord | None = None
    for record in sorted(records, key=lambda one: one.started_at_unix_s):
        gap_s = 0.0 if before is None else record.started_at_unix_s - before.finished_at_unix_s
        if traced is not None and before is not None:
            inside = before.finished_at_unix_s <= traced.ended_at_unix_s <= record.started_at_unix_s
            gap_s -= traced.seconds if inside else 0.0
        if before is None or before.effective.tp_size != record.effective.tp_size:
            if before is not None:
                between.append(round(gap_s, 2))
            gap_s = 0.0
        wall_s = record.finished_at_unix_s - record.started_at_unix_s
        engine_s = engine_seconds(record)
        rows.append(
            {
                "trial": record.trial_id,
                "tp_size": record.effective.tp_size,
                "wall_s": round(wall_s, 2),
                "engine_s": round(engine_s, 2),
                "gap_s": round(gap_s, 3),
                "ours_s": round(wall_s - engine_s + gap_s, 3),
                "share": round((wall_s - engine_s + gap_s) / (wall_s + gap_s), 4),
            }
        )
        before = record
    total_s = sum(row["wall_s"] + row["gap_s"] for row in rows)
    return {
        "share": round(sum(row["ours_s"] for row in rows) / total_s, 4),
        "share_median": round(statistics.median(row["share"] for row in rows), 4),
        "share_largest": max(row["share"] for row in rows),
        "trials_s": round(total_s, 1),
        "between_groups_s": between,
        "traces_s": 0.0 if traced is None else traced.seconds,
        "trials": rows,
    }


def traces_of(folder: StudyFolder) -> Traced | None:
    """None when nothing was traced."""
    notes, written = read_notes(folder), [path.stat().st_mtime for path in traces_path(folder).rglob("*")]
    if notes is None or not written:
        return None
    return Traced(seconds=notes.trace_s, ended_at_unix_s=max(written))


def engine_seconds(record: TrialRecord) -> float:
    """The part of a trial's wall time in which it waited for SGLang."""
    launch = record.launch
    if launch is None:
        return record.ended_s
    started_s = launch.ready_s if launch.weights_loaded else 0.0
    cells_s = sum(cell.duration_s for cell in record.cells)
    return record.ended_s + started_s + (launch.switch_s or 0.0) + (record.warm_up_s or 0.0) + cells_s


class MemoryWatch(threading.Thread):
    """Samples a driver and everything below it, and the servers of its study, until stopped."""

    def __init__(self, driver: int, owner: str) -> None:
        super().__init__(daemon=True)
        self._driver, self._owner = driver, owner
        self._ended = threading.Event()
        self.samples: list[dict[Part, float]] = []

    def run(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self.samples.append(self._sample())

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def _sample(self) -> dict[Part, float]:
        servers = {pid for pid, _ in find_leftovers(self._owner)}
        found: dict[Part, float] = {"driver": 0.0, "actors": 0.0, "ray": 0.0, "servers": 0.0}
        for pid in servers:
            found["servers"] += pss_mib(pid)
        for pid in below(self._driver) - servers:
            found[part_of(pid, self._driver)] += pss_mib(pid)
        return found

    def peaks(self) -> dict[str, Any]:
        return {
            "samples": len(self.samples),
            "driver_and_actors_mib": round(max(one["driver"] + one["actors"] for one in self.samples)),
            "driver_mib": round(max(one["driver"] for one in self.samples)),
            "actors_mib": round(max(one["actors"] for one in self.samples)),
            "ray_itself_mib": round(max(one["ray"] for one in self.samples)),
            "servers_and_guards_mib": round(max(one["servers"] for one in self.samples)),
        }


def part_of(pid: int, driver: int) -> Part:
    """Ray names its workers by what they run."""
    if pid == driver:
        return "driver"
    with contextlib.suppress(OSError):
        if b"ray::GpuGroup" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return "actors"
    return "ray"


def below(root: int) -> set[int]:
    """A process and its living descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found, grown = found | more, bool(more)
    return found


def pss_mib(pid: int) -> float:
    """0 for a process that has just ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", type=Path, default=ROOT / "sweeps" / "specs" / "demo.yaml")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=YAML", help="as for `specsweep run`")
    asked = parser.parse_args()
    changes = [word for text in asked.set for word in ("--set", text)]
    with tempfile.TemporaryDirectory() as home:
        folder = StudyFolder(Path(home).resolve() / "demo")
        environment = os.environ | {"SPECSWEEP_HOME": home, "MLFLOW_DISABLE_TELEMETRY": "true"}
        program = [sys.executable, "-m", "sweeps", "run", str(asked.spec), "--set", "study=demo", *changes]
        started_at, began_s = time.time(), time.monotonic()
        with subprocess.Popen(program, env=environment, cwd=ROOT) as driver:
            watch = MemoryWatch(driver.pid, sweep_id("demo", folder.path) + "/")
            watch.start()
            code = driver.wait()
            watch.stop()
        whole_s = time.monotonic() - began_s
        records, traced = folder.records(), traces_of(folder)
    time_spent = account(records, traced)
    memory = watch.peaks()
    result = {
        "definition": " ".join((__doc__ or "").partition("**Time**")[2].split()),
        "exit_code": code,
        "limits": {"share": SHARE_LIMIT, "driver_and_actors_mib": round(MEMORY_LIMIT_MIB)},
        "seconds": {
            "whole": round(whole_s, 1),
            "before_the_first_trial": round(min(one.started_at_unix_s for one in records) - started_at, 1),
            "after_the_last_trial": round(started_at + whole_s - max(one.finished_at_unix_s for one in records), 1),
        },
        "memory": memory,
        "time": time_spent,
    }
    print(json.dumps(result, indent=1))
    if asked.out is not None:
        write_result(asked.out, command="python benchmarks/orchestration.py", content=result)
    good = time_spent["share"] <= SHARE_LIMIT and memory["driver_and_actors_mib"] <= MEMORY_LIMIT_MIB
    return 0 if code == 0 and good else 1


if __name__ == "__main__":
    sys.exit(main())
