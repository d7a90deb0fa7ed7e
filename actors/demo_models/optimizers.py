"""The optimizer of the demo pair: Muon for the blocks' matrices, AdamW for the rest, one learning-rate schedule."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 4


def orthogonalise(matrices: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrices, roughly, of a (batch, rows, columns) stack with rows <= columns.

    Newton-Schulz iteration of Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks").
    """
    a, b, c = NEWTON_SCHULZ
    x: Tensor = matrices / (matrices.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


@dataclass
class _Stack:
    """Parameters of one shape, whose updates are orthogonalised together (far faster than one by one on a CPU)."""

    parameters: list[nn.Parameter]
    momentum: Tensor

    def step(self, rate: float) -> None:
        grads = torch.stack([p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters])
        self.momentum.lerp_(grads, 1 - MOMENTUM)
        update = grads.lerp_(self.momentum, MOMENTUM)
        rows, columns = update.shape[1:]
        update = orthogonalise(update.transpose(1, 2)).transpose(1, 2) if rows > columns else orthogonalise(update)
        scale = rate * max(1.0, rows / columns) ** 0.5
        for parameter, part in zip(self.parameters, update, strict=True):
            parameter.sub_(part, alpha=scale)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Peak learning rates: of the blocks' matrices (Muon) and of embeddings, output layer and norms (AdamW)."""

    matrix: float
    other: float


class Optimizer:
    """Descends on one model's loss: warm-up over a twentieth of the steps, then a linear decay to nearly nothing."""

    def __init__(self, model: nn.Module, steps: int, rates: Rates) -> None:
        named = list(model.named_parameters())
        matrices = [p for name, p in named if p.dim() == 2 and not name.startswith(("embed_tokens", "lm_head"))]
        chosen = {id(p) for p in matrices}
        by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for parameter in matrices:
            by_shape[parameter.shape].append(parameter)
        self._stacks = [_Stack(group, torch.zeros(len(group), *shape)) for shape, group in by_shape.items()]
        self._others = torch.optim.AdamW(
            [p for _, p in named if id(p) not in chosen], lr=rates.other, betas=(0.9, 0.98), weight_decay=0.01
        )
        self._rates, self._steps, self._done, self._model = rates, steps, 0, model

    @property
    def fraction(self) -> float:
        """The share of the full learning rate that the next step takes."""
        warmup = max(1, self._steps // 20)
        return min((self._done + 1) / warmup, max(0.02, (self._steps - self._done) / (self._steps - warmup + 1)))

    def minimise(self, loss: Tensor) -> None:
        """One step on a loss with a graph; leaves no gradients behind."""
        loss.backward()  # type: ignore[no-untyped-call]
        self._step()
        self._model.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _step(self) -> None:
        for stack in self._stacks:
            stack.step(self._rates.matrix * self.fraction)
        for group in self._others.param_groups:
            group["lr"] = self._rates.other * self.fraction
        self._others.step()
        self._done += 1
