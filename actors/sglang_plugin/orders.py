"""The control channel: a folder that only this user can enter, with one order at a time and one answer per rank.

An order takes effect at the next `/flush_cache`, which SGLang runs on every rank and only when nothing runs.
Standard library only: both sides use this module, the driver's actor and every rank of the server.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "SPECSWEEP_CONTROL"
TOKEN_VARIABLE = "SPECSWEEP_CONTROL_TOKEN"  # noqa: S105  (a name, not a token)


@dataclass(frozen=True, kw_only=True)
class TraceOrder:
    """Log every draft's candidate pool to `file`, and make every draft miss by proposing `poison_id` alone.

    Writing stops at `max_bytes`, which the trace's index then says.
    """

    file: str
    poison_id: int
    max_bytes: int


@dataclass(frozen=True, kw_only=True)
class ProbeOrder:
    """Record what the draft is fed, per rank, and the target's taps, on rank 0, for the first `max_tokens` of prompts.

    Rank r writes `prefix.r.npz` at the next flush. Only requests whose id begins with `rid_prefix` are recorded: the
    server's own warm-up may come late.
    """

    prefix: str
    max_tokens: int
    rid_prefix: str = ""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What every rank is to run from the next flush on.

    `ids` are the target's aux-layer ids as SGLang's own setter takes them, None for its default. `graph_batch_sizes`
    are the batch sizes to capture CUDA graphs for; None leaves SGLang's own choice. `sequence` grows by one per order.
    """

    sequence: int
    num_steps: int
    eagle_topk: int
    num_draft_tokens: int
    ids: tuple[int, ...] | None
    graph_batch_sizes: tuple[int, ...] | None
    trace: TraceOrder | None = None
    probe: ProbeOrder | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one rank made of one order. `error` is one line, None when it took effect.

    `graphs_s` and `graphs_gb` are what of it was spent on capturing CUDA graphs, as SGLang counts it. `not_freed` names
    the parts of the state before that live on.
    """

    sequence: int
    rank: int
    error: str | None
    elapsed_s: float
    running: Mapping[str, Any]
    graphs_s: float = 0.0
    graphs_gb: float = 0.0
    not_freed: tuple[str, ...] = ()


class ControlFolder:
    """Both ends of the channel. The token keeps a stale server of another sweep from taking this one's orders."""

    def __init__(self, path: Path, token: str) -> None:
        self.path, self._token = path, token

    @classmethod
    def create(cls, path: Path, token: str) -> ControlFolder:
        """Make the folder anew, closed to other users."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        folder = cls(path, token)
        folder.clear()
        return folder

    def clear(self) -> None:
        """Remove orders and answers, also while a rank of the server before is renaming its last."""
        for left in self.path.iterdir():
            left.unlink(missing_ok=True)

    @classmethod
    def from_environment(cls) -> ControlFolder | None:
        """The folder that this server was told to obey, None without one."""
        path = os.environ.get(FOLDER_VARIABLE)
        return cls(Path(path), os.environ.get(TOKEN_VARIABLE, "")) if path else None

    def give(self, order: Order) -> None:
        """Replace the order that the next flush reads."""
        self._write("order.json", {"token": self._token, **asdict(order)})

    def take(self, after: int) -> Order | None:
        """The current order if its sequence is beyond `after`; None without one. PermissionError for a wrong token."""
        try:
            content = json.loads((self.path / "order.json").read_text())
        except FileNotFoundError:
            return None
        if not hmac.compare_digest(str(content.pop("token", "")), self._token):
            raise PermissionError("the order carries another sweep's token")
        if content["sequence"] <= after:
            return None
        content["trace"] = TraceOrder(**content["trace"]) if content["trace"] else None
        content["probe"] = ProbeOrder(**content["probe"]) if content["probe"] else None
        for name in ("ids", "graph_batch_sizes"):
            content[name] = None if content[name] is None else tuple(content[name])
        return Order(**content)

    def answer(self, answer: Answer) -> None:
        self._write(f"answer-{answer.rank}.json", asdict(answer))

    def answers(self, sequence: int) -> tuple[Answer, ...]:
        """What the ranks have said to this order so far, in rank order."""
        found = [Answer(**json.loads(file.read_text())) for file in self.path.glob("answer-*.json")]
        return tuple(sorted((a for a in found if a.sequence == sequence), key=lambda answer: answer.rank))

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        fresh = self.path / f".{name}.{os.getpid()}"
        fresh.write_text(json.dumps(content))
        fresh.replace(self.path / name)
