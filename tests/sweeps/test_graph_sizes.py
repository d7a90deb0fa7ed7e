"""For which batch sizes a switched server captures CUDA graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import MINIMAL, write_models, write_spec

from actors.placement import Device
from sweeps.groups import graph_batch_sizes
from sweeps.spec import load_spec


@pytest.mark.parametrize(
    ("workload", "device", "sizes"),
    [
        ("{concurrency: [1, 16]}", "cuda", (1, 16)),
        ("{concurrency: [1, 16]}", "cpu", None),
        ("{concurrency: [4], request_rate: [2.5]}", "cuda", None),
    ],
)
def test_graphs_are_for_what_is_measured(
    tmp_path: Path, workload: str, device: Device, sizes: tuple[int, ...] | None
) -> None:
    write_models(tmp_path)
    spec = load_spec(write_spec(tmp_path, MINIMAL + f"workload: {workload}\n"), [])
    assert graph_batch_sizes(spec, device) == sizes
