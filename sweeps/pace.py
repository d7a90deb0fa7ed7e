"""What a launch and a switch take, and how many servers run at once: the prices of a plan."""

from __future__ import annotations

import os
from dataclasses import dataclass

from actors.cluster_address import ClusterAddress
from actors.engines.devices import has_gpu
from sweeps.spec_schema import SweepSpec
from sweeps.switching import known_device, switches

SECONDS_PER_LAUNCH, SECONDS_PER_SWITCH = 180.0, 60.0


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What things take and what is shared. `slots` is None when the number of GPUs is not known; then one group at a
    time is assumed. `switches` says that a running server takes another layout or triple without loading weights."""

    seconds_per_launch: float
    seconds_per_switch: float
    slots: int | None
    max_parallel: int | None
    switches: bool

    def groups(self, tp_size: int) -> int:
        """How many servers of this size run at once."""
        fit = 1 if self.slots is None else max(1, self.slots // tp_size)
        return fit if self.max_parallel is None else min(fit, self.max_parallel)


def pace_of(
    spec: SweepSpec,
    seconds_per_launch: float = SECONDS_PER_LAUNCH,
    seconds_per_switch: float = SECONDS_PER_SWITCH,
) -> Pace:
    """The pace of a spec's cluster, as far as it can be told without asking one."""
    return Pace(
        seconds_per_launch=seconds_per_launch,
        seconds_per_switch=seconds_per_switch,
        slots=spec.cluster.gpus,
        max_parallel=spec.cluster.max_parallel,
        switches=_will_switch(spec),
    )


def _will_switch(spec: SweepSpec) -> bool:
    device = known_device(spec, ())
    if device is None:
        ours = ClusterAddress(address=spec.cluster.address).resolve(os.environ) is None
        device = "cpu" if ours and not has_gpu() else "cuda"
    return switches(spec, device)
