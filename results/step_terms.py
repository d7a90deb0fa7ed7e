"""What one round costs, as sums of terms with coefficients of at least 0.

A round is s - 1 forwards of the draft after the one that extends its cache, and one verification of n tokens for each
of b requests. The forms in the literature differ in what they let grow:

- Sequoia (Chen et al., 2024, section 3.3): s draft forwards and one verification whose time depends on the tree size;
- TurboSpec (Liu et al., 2024, section 4): linear in the number of tokens in the batch, for draft and target each;
- MagicDec (Sadhukhan et al., 2024, section 3): loading the requests' caches grows with the batch, not with the tokens;
- the roofline behind all of them: more tokens are free until arithmetic, not memory, is the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_spaces.config import Triple

Floats = NDArray[np.float64]
Term = Callable[[float, Triple], float]

KNEES = (16, 64, 256)
"""Tokens in a batch up to which verifying may be free."""


def _above(knee: int) -> Term:
    return lambda batch, triple: max(0.0, batch * triple.num_draft_tokens - knee)


TERMS: Mapping[str, Term] = {
    "round": lambda batch, triple: 1.0,
    "draft_steps": lambda batch, triple: float(triple.num_steps),
    "requests": lambda batch, triple: batch,
    "verify_tokens": lambda batch, triple: batch * triple.num_draft_tokens,
    "draft_tokens": lambda batch, triple: batch * triple.eagle_topk * (triple.num_steps - 1),
    "candidates": lambda batch, triple: batch * triple.eagle_topk**2 * (triple.num_steps - 1),
    **{f"verify_tokens_above_{knee}": _above(knee) for knee in KNEES},
}

Form = tuple[str, ...]

FORMS: Mapping[str, Form] = {
    "steps": ("round", "draft_steps"),
    "tokens": ("round", "draft_steps", "verify_tokens"),
    "tree": ("round", "draft_steps", "verify_tokens", "draft_tokens"),
    "tree_batch": ("round", "draft_steps", "requests", "verify_tokens", "draft_tokens"),
    "tree_sort": ("round", "draft_steps", "requests", "verify_tokens", "draft_tokens", "candidates"),
    **{
        f"roofline_{knee}": ("round", "draft_steps", "requests", f"verify_tokens_above_{knee}", "draft_tokens")
        for knee in KNEES
    },
}
"""The forms that compete, simple ones first."""

DEFAULT_FORM = "tree_sort"
"""Used until there are enough measurements to choose by."""


@dataclass(frozen=True, kw_only=True)
class RoundKind:
    """What a round's time depends on. `variant` stands for everything else, such as further flags."""

    batch: float
    triple: Triple
    tp_size: int
    variant: str = ""

    @property
    def group(self) -> tuple[int, str]:
        """Kinds of one group share their coefficients; others have similar ones."""
        return self.tp_size, self.variant


def term_matrix(form: Form, kinds: Sequence[RoundKind]) -> Floats:
    """The terms of a form, shape [kinds, terms]."""
    return np.array([[TERMS[name](kind.batch, kind.triple) for name in form] for kind in kinds], dtype=np.float64)
