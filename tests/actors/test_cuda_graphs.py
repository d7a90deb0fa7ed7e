"""Batch sizes of CUDA graphs, with SGLang's own configuration of them; there is no GPU in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
sglang_config = pytest.importorskip("sglang.srt.model_executor.cuda_graph_config")

from sglang.srt import runtime_context  # noqa: E402

from actors.sglang_plugin.cuda_graphs import capture_prefill_anew, graph_costs, graphs_for, set_prefill_graphs_aside  # noqa: E402


class Context:
    """The published configuration, as far as graphs go."""

    def __init__(self) -> None:
        config = sglang_config.default_cuda_graph_config()
        config.decode.bs = [1, 2, 4, 8, 16]
        self.graph = SimpleNamespace(cuda_graph_config=config)

    def override(self, source: str, *, cuda_graph_config: Any) -> None:
        self.graph.cuda_graph_config = cuda_graph_config


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Context:
    made = Context()
    monkeypatch.setattr(runtime_context, "get_context", lambda: made)
    for module in (runtime_context, sglang_config):
        monkeypatch.setattr(module, "get_exec", lambda: made)
    return made


@pytest.mark.parametrize(
    ("sizes", "captured", "disabled"),
    [(None, [1, 2, 4, 8, 16], False), ([1, 24], [1, 24], False), ([], [1, 2, 4, 8, 16], True)],
)
def test_what_runners_read_says_the_sizes(
    context: Context, sizes: list[int] | None, captured: list[int], disabled: bool
) -> None:
    before = context.graph.cuda_graph_config
    with graphs_for(sizes):
        assert context.graph.cuda_graph_config.decode.bs == captured
        assert sglang_config.check_cuda_graph_backend("decode", "disabled") is disabled
        assert context.graph.cuda_graph_config.prefill == before.prefill
    assert context.graph.cuda_graph_config is before
    assert before.decode.bs == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(("held", "captures"), [("graphs", 1), ("eager", 0), (None, 0)])
def test_prefill_graphs_are_made_anew_where_there_are_some(held: str | None, captures: int) -> None:
    seen: list[str] = []
    runner = SimpleNamespace(eager_runner="eager", prefill_cuda_graph_runner=held)
    runner.init_prefill_cuda_graph = lambda: seen.append("captured")
    assert (capture_prefill_anew(runner) > 0) == bool(captures)
    assert len(seen) == captures


def test_prefill_goes_without_graphs_for_a_while() -> None:
    target = SimpleNamespace(eager_runner="eager", prefill_cuda_graph_runner="graphs")
    draft, none = SimpleNamespace(prefill_cuda_graph_runner="draft's"), SimpleNamespace()
    bring_back = set_prefill_graphs_aside(target, draft, none)
    assert (target.prefill_cuda_graph_runner, draft.prefill_cuda_graph_runner) == ("eager", None)
    bring_back()
    assert (target.prefill_cuda_graph_runner, draft.prefill_cuda_graph_runner) == ("graphs", "draft's")
    assert vars(none) == {}


def test_the_cost_of_graphs_is_zero_where_nothing_is_counted() -> None:
    assert graph_costs(SimpleNamespace()) == (0.0, 0.0)
    usage = {"graph_time_usage": {"target_verify": 2.0, "draft_decode": 0.5}, "graph_memory_usage": {"draft": 0.25}}
    assert graph_costs(SimpleNamespace(**usage)) == (2.5, 0.25)
