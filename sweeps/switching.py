"""Whether a sweep's servers are switched, and what follows from it: a check both ways, traces. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from search_spaces.config import EngineConfig, Flags
from sweeps.spec_checks import is_throughput
from sweeps.spec_schema import SweepSpec

if TYPE_CHECKING:
    from actors.placement import Device
    from results.records import TrialRecord


def known_device(spec: SweepSpec, records: Sequence[TrialRecord]) -> Device | None:
    """The device as the spec names it, else as the study was measured; None when only the cluster can tell."""
    if spec.engine.device != "auto":
        return spec.engine.device
    seen = [record.launch.accelerator for record in records if record.launch is not None]
    return None if not seen else "cpu" if seen[-1] == "cpu" else "cuda"


def switches(spec: SweepSpec, device: Device) -> bool:
    """Whether a running server takes another layout or triple in this sweep."""
    return spec.engine.switching == "on" or (spec.engine.switching == "auto" and device == "cpu")


def follows_surface(spec: SweepSpec, switching: bool) -> bool:
    """Whether the study of a spec traces and follows its surface; `switching` is whether its servers are switched."""
    if spec.search.sampler == "auto":
        greedy = spec.workload.temperature == 0
        return switching and greedy and spec.engine.kind == "sglang" and is_throughput(spec)
    return spec.search.sampler == "surface"


def smallest_tp_size(configs: Iterable[EngineConfig]) -> int:
    """The TP size at which a space is traced and checked both ways. ValueError without a speculative setting."""
    return min(config.tp_size for config in configs if config.triple is not None)


def has_switches(configs: Iterable[EngineConfig]) -> bool:
    """Whether there is anything to switch between at the smallest TP size of a space's distinct servers."""
    sizes = sorted(config.tp_size for config in configs if config.triple is not None)
    return len(sizes) > 1 and sizes[0] == sizes[1]


def server_kind(config: EngineConfig) -> tuple[int, Flags, int]:
    """Equal for configurations that one server can be switched through (`actors.engines.live_control`): the same TP
    size, flags and number of taps."""
    return config.tp_size, config.flags, len(config.layout or ())
