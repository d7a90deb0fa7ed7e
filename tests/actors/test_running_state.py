"""What a rank says that it runs, and that a switch lets go of what ran before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from actors.sglang_plugin.running_state import agreed, free, live_parts


class Part:
    """A backend that is in a cycle, as SGLang's are with their runners."""

    def __init__(self) -> None:
        self.owner = SimpleNamespace(part=self)


def worker() -> Any:
    runner = SimpleNamespace(attn_backend=Part(), decode_cuda_graph_runner=Part())
    draft = SimpleNamespace(
        draft_attn_backend=Part(),
        draft_extend_attn_backend=None,
        cuda_graph_runner=Part(),
        cuda_graph_runner_for_draft_extend=None,
    )
    return SimpleNamespace(_draft_worker=draft, _target_worker=SimpleNamespace(model_runner=runner))


def switched(one: Any) -> None:
    one._draft_worker.draft_attn_backend, one._draft_worker.cuda_graph_runner = Part(), None
    one._target_worker.model_runner.attn_backend = Part()


@pytest.fixture
def frozen() -> Iterator[Any]:
    """A worker whose state is out of the collector's reach, as it is in a server that has started."""
    made = worker()
    gc.freeze()
    yield made
    gc.unfreeze()


def test_what_a_switch_replaced_is_collected() -> None:
    one = worker()
    parts = live_parts(one)
    assert sorted(parts) == ["draft_attn_backend", "draft_graphs", "target_attn_backend", "target_graphs"]
    switched(one)
    assert free(parts, one) == ()
    # what was not replaced stays
    assert [name for name, part in parts.items() if part() is not None] == ["target_graphs"]


def test_the_state_of_the_launch_is_thawed_and_collected(frozen: Any) -> None:
    parts = live_parts(frozen)
    switched(frozen)
    gc.collect()
    assert parts["draft_graphs"]() is not None
    assert free(parts, frozen) == ()
    assert parts["draft_graphs"]() is None
    assert gc.get_freeze_count() > 0


def test_what_somebody_holds_is_named() -> None:
    one = worker()
    parts, held = live_parts(one), one._draft_worker.cuda_graph_runner
    switched(one)
    assert free(parts, one) == ("draft_graphs",)
    assert held is parts["draft_graphs"]()


def test_places_that_disagree_are_seen() -> None:
    assert agreed(3, 3, None) == 3
    assert agreed(3, 5, 3) == "3 and 5 and 3"
