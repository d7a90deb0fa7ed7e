"""The probe on stand-ins of every way in which SGLang's target classes capture: what the draft gets stays as it was."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from actors.sglang_plugin import feed_probe  # noqa: E402
from actors.sglang_plugin.feed_probe import FeedProbe, reads_marks  # noqa: E402
from actors.sglang_plugin.orders import ProbeOrder  # noqa: E402
from results.feed import load_capture, match_feed  # noqa: E402

LAYERS, HIDDEN, TOKENS = 6, 4, 5
EXTEND = SimpleNamespace(is_extend=lambda: True, is_target_verify=lambda: False)


def streams() -> Any:
    """What enters block i, and behind the last one what leaves it: as different as possible."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(LAYERS + 1, TOKENS, HIDDEN, generator=generator)


class Body(torch.nn.Module):  # type: ignore[misc, name-defined]
    """As in models/llama.py: a list of states, by membership."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Identity() for _ in range(LAYERS))
        self.layers_to_capture: list[int] = []

    def mark(self, indices: list[int]) -> None:
        self.layers_to_capture = indices

    def forward(self, input_ids: Any, forward_batch: Any) -> Any:
        aux = [streams()[i] for i in range(LAYERS) if i in self.layers_to_capture]
        return streams()[-1], aux


class Packed(Body):
    """As in models/deepseek_v2.py: one tensor, and as many states as are listed or none at all."""

    def forward(self, input_ids: Any, forward_batch: Any) -> Any:
        aux = [streams()[i] for i in range(LAYERS) if i in self.layers_to_capture]
        if len(aux) != len(self.layers_to_capture):
            raise RuntimeError(f"captured {len(aux)} of {len(self.layers_to_capture)} aux hidden states")
        return streams()[-1], torch.cat(aux, dim=-1)


class Marked(Body):
    """As in models/qwen2_moe.py: marks on blocks, which other blocks lack altogether."""

    def mark(self, indices: list[int]) -> None:
        self.layers_to_capture = indices
        for index in indices:
            self.layers[index]._is_layer_to_capture = True

    def forward(self, input_ids: Any, forward_batch: Any) -> Any:
        aux = [streams()[i] for i, layer in enumerate(self.layers) if getattr(layer, "_is_layer_to_capture", False)]
        return streams()[-1], aux


class MarkedInVain(Marked):
    """As in models/qwen3_vl_moe.py: marks are set, and the list is looked at."""

    def forward(self, input_ids: Any, forward_batch: Any) -> Any:
        aux = [streams()[i] for i in range(LAYERS) if i in self.layers_to_capture]
        return streams()[-1], aux


class ToLast(Body):
    """As in models/gpt_oss.py and models/gemma3_causal.py: also behind the last block."""

    def forward(self, input_ids: Any, forward_batch: Any) -> Any:
        num_layers = LAYERS
        aux = [streams()[i] for i in range(LAYERS) if i in self.layers_to_capture]
        if num_layers in self.layers_to_capture:
            aux.append(streams()[num_layers])
        return streams()[-1], aux


class Elsewhere(Body):
    """A class of tomorrow: states are no longer returned beside the hidden state."""

    def forward(self, input_ids: Any, forward_batch: Any) -> Any:
        forward_batch.kept = [streams()[i] for i in range(LAYERS) if i in self.layers_to_capture]
        return streams()[-1]


class Draft(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Identity()])

    def forward(self, forward_batch: Any) -> None:
        return None


def causal(body: Any) -> Any:
    return SimpleNamespace(model=body)


def multimodal(body: Any) -> Any:
    return SimpleNamespace(language_model=SimpleNamespace(model=body))


def text_in_wrapper(body: Any) -> Any:
    return SimpleNamespace(language_model=body)


def probed(body: Any, marks: list[int], prefix: Path, wrap: Any = causal, rank: int = 0) -> tuple[Any, Any]:
    """(what the draft would be fed without the probe, with it) after one prompt went through both."""
    body.mark(marks)
    draft = Draft()
    worker = SimpleNamespace(
        _target_worker=SimpleNamespace(model_runner=SimpleNamespace(model=wrap(body))),
        _draft_worker=SimpleNamespace(draft_runner=SimpleNamespace(model=SimpleNamespace(model=draft))),
    )
    batch = SimpleNamespace(
        forward_mode=EXTEND,
        spec_info=SimpleNamespace(hidden_states=None),
        rids=["probe-1"],
        input_ids=torch.arange(TOKENS),
    )
    plain = body(None, batch)
    probe = FeedProbe()
    probe.start(worker, ProbeOrder(prefix=str(prefix), max_tokens=64, rid_prefix="probe-"), rank=rank)
    answer = body(None, batch)
    if isinstance(answer, tuple):
        fed = answer[1] if isinstance(answer[1], torch.Tensor) else torch.cat(answer[1], dim=-1)
        batch.spec_info.hidden_states = fed
        draft(batch)
    probe.stop()
    assert torch.equal(body(None, batch)[0] if isinstance(answer, tuple) else body(None, batch), streams()[-1])
    return plain, answer


WAYS: list[tuple[type[Body], list[int], tuple[int, ...]]] = [
    (Body, [2, 3, 5], (2, 3, 5)),
    (Body, [0, 3, 5], (0, 3, 5)),
    (Body, [5, 2, 3], (2, 3, 5)),
    (Packed, [0, 2, 4], (0, 2, 4)),
    (Marked, [2, 3, 5], (2, 3, 5)),
    (Marked, [-1, 2, 3], (2, 3, 5)),
    (MarkedInVain, [1, 2, 4], (1, 2, 4)),
    (MarkedInVain, [-1, 2, 4], (2, 4)),
    (ToLast, [2, 3, 6], (2, 3, 6)),
    (ToLast, [2, 3, 5], (2, 3, 5)),
]


@pytest.mark.parametrize(("way", "marks", "taps"), WAYS)
@pytest.mark.parametrize("wrap", [causal, multimodal, text_in_wrapper])
def test_every_way_of_capturing(
    tmp_path: Path, way: type[Body], marks: list[int], taps: tuple[int, ...], wrap: Any
) -> None:
    body = way()
    plain, answer = probed(body, marks, tmp_path / "feed", wrap)
    for before, with_probe in zip(plain[1], answer[1], strict=True):
        assert torch.equal(before, with_probe)
    assert body.layers_to_capture == marks
    capture = load_capture(tmp_path / "feed.0.npz", 0)
    assert capture.input_ids.tolist() == list(range(TOKENS))
    assert match_feed((capture,), capture, slots=len(taps)).layout == taps


def test_marks_are_as_they_were(tmp_path: Path) -> None:
    body = Marked()
    probed(body, [1, 4], tmp_path / "feed")
    assert [hasattr(layer, feed_probe.MARK) for layer in body.layers] == [False, True, False, False, True, False]


def test_which_loops_read_marks() -> None:
    assert [reads_marks(way) for way in (Body, Packed, Marked, MarkedInVain, ToLast)] == [
        False,
        False,
        True,
        False,
        False,
    ]


def test_a_class_that_captures_otherwise_serves_on_and_says_so(tmp_path: Path) -> None:
    plain, answer = probed(Elsewhere(), [2, 3, 5], tmp_path / "feed")
    assert torch.equal(plain, answer)
    assert not (tmp_path / "feed.0.npz").exists()
    assert "Elsewhere captures in another way" in (tmp_path / "feed.0.problem").read_text()


def test_a_full_disk_is_said_and_the_server_serves_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.savez", full)
    plain, answer = probed(Marked(), [1, 4], tmp_path / "feed")
    assert torch.equal(plain[0], answer[0])
    assert (tmp_path / "feed.0.problem").read_text().endswith("feed.0.npz: [Errno 28] No space left on device")


def test_a_class_without_a_loop_is_refused(tmp_path: Path) -> None:
    body = Body()
    del body.layers_to_capture
    worker = SimpleNamespace(_target_worker=SimpleNamespace(model_runner=SimpleNamespace(model=causal(body))))
    with pytest.raises(LookupError, match="cannot be probed"):
        FeedProbe().start(worker, ProbeOrder(prefix=str(tmp_path / "feed"), max_tokens=8, rid_prefix=""), rank=0)
