"""How a target class reads the ids in a draft's config: from ids to captured taps, and back.

In SGLang a target captures, while it runs its blocks, the residual stream that enters block i for every i in a list
made from the ids by `set_eagle3_layers_to_capture` of the model class. That stream is tap i (0 is the embedding
output, N the output of the last block). Since the list is only tested for membership, the captured taps always come
in ascending order and once each, whatever the ids look like.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from search_spaces.config import Taps, layout_label

Shift = Literal["always", "first_is_one", "unless_last"]
"""When explicit ids get +1: on every list, only when the first id is 1, or unless the largest id is N."""

Marking = Literal["membership", "layer_flags", "unused_flags"]
"""`membership`: block i captures when i is in the list. `layer_flags`: a flag is set on `layers[i]` for each i of the
list and read by the loop, so that a negative index counts from the end and one beyond the end raises IndexError.
`unused_flags`: the flags are set, with the same IndexError, but the loop tests membership."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Capture:
    """What a target captures. `expected` is how many states were asked for; `problems` are plain sentences.

    `marks` are the indices of the capture loop that SGLang makes from the ids, in its own order. A capture with
    problems dies at start or at the first batch, unless the draft happens to be as narrow as what is left.
    """

    taps: Taps
    expected: int
    problems: tuple[str, ...]
    marks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Inexpressible:
    """No list of ids makes this target class feed these taps in this order."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """The convention of a family of target classes, with the upstream place where it was read.

    `last_tap` tells whether tap N (behind the last block) can be captured. `default_shifted` tells whether the
    default [2, N//2, N-3] gets +1 too. `counts_states` marks classes whose packer demands one state per listed id and
    dies with "captured 2 of 3 aux hidden states"; the others die later, in the draft's `fc`.
    """

    name: str
    source: str
    shift: Shift = "always"
    marking: Marking = "membership"
    last_tap: bool = False
    default_shifted: bool = False
    counts_states: bool = False

    def capture(self, ids: tuple[int, ...] | None, num_layers: int) -> Capture:
        """What a target of `num_layers` blocks captures for the ids of a draft's config (None: the key is absent)."""
        marks = self._default_marks(num_layers) if ids is None else self._shifted(ids, num_layers)
        matched = {mark: self._matched(mark, num_layers) for mark in marks}
        taps = tuple(sorted({tap for tap in matched.values() if tap is not None}))
        problems = tuple(self._problems(ids, marks, matched, taps, num_layers))
        return Capture(taps=taps, expected=len(marks), problems=problems, marks=marks)

    def ids_for(self, taps: Taps, num_layers: int) -> tuple[int, ...] | Inexpressible:
        """Ids for which `capture` gives exactly `taps`, without problems; `Inexpressible` when there are none."""
        reason = self._why_not(taps, num_layers)
        if reason is not None:
            return Inexpressible(reason=reason)
        if self.shift != "first_is_one":
            return tuple(tap - 1 for tap in taps)
        if taps[0] != 1:
            return taps
        # a leading 1 would shift the whole list, and order is lost anyway
        return (taps[1], taps[0], *taps[2:])

    def _default_marks(self, num_layers: int) -> tuple[int, ...]:
        shift = 1 if self.default_shifted else 0
        return tuple(mark + shift for mark in (2, num_layers // 2, num_layers - 3))

    def _shifted(self, ids: tuple[int, ...], num_layers: int) -> tuple[int, ...]:
        shifts = {
            "always": True,
            "first_is_one": bool(ids) and ids[0] == 1,
            "unless_last": not ids or max(ids) != num_layers,
        }[self.shift]
        return tuple(i + 1 for i in ids) if shifts else ids

    def _matched(self, mark: int, num_layers: int) -> int | None:
        if self.marking == "layer_flags" and -num_layers <= mark < 0:
            return mark + num_layers
        return mark if 0 <= mark < self._loop_end(num_layers) else None

    def _loop_end(self, num_layers: int) -> int:
        return num_layers + 1 if self.last_tap else num_layers

    def _why_not(self, taps: Taps, num_layers: int) -> str | None:
        label = layout_label(taps)
        if not taps:
            return "a layout needs at least one tap"
        beyond = [tap for tap in taps if not 0 <= tap < self._loop_end(num_layers)]
        if beyond:
            return f"tap {beyond[0]} is never captured on this class (taps 0 to {self._loop_end(num_layers) - 1} are)"
        twice = [tap for tap, count in Counter(taps).items() if count > 1]
        if twice:
            return f"tap {twice[0]} is listed twice; a tap is captured once"
        if taps != tuple(sorted(taps)):
            return f"order is lost: {label} would be fed as {layout_label(tuple(sorted(taps)))}"
        if self.shift == "first_is_one" and taps == (1,):
            return "tap 1 alone cannot be written on this class: the list [1] is shifted to tap 2"
        return None

    def _problems(
        self,
        ids: tuple[int, ...] | None,
        marks: tuple[int, ...],
        matched: dict[int, int | None],
        taps: Taps,
        num_layers: int,
    ) -> list[str]:
        if ids is not None and not ids:
            return ["the list of ids is empty: nothing would be captured"]
        found = []
        for asked, mark in zip(marks if ids is None else ids, marks, strict=True):
            if self.marking != "membership" and not -num_layers <= mark < num_layers:
                found.append(f"{asked} is beyond the layers of this class (IndexError)")
            elif matched[mark] is None:
                found.append(f"{asked} never matches on this class")
            elif mark < 0:
                found.append(f"{asked} counts from the end on this class and captures tap {matched[mark]}")
        found += [f"tap {tap} is listed twice" for tap in _twice(matched[mark] for mark in marks)]
        if len(taps) < len(marks):
            found.append(f"{len(taps)} of {len(marks)} states would be captured")
        if found and ids is None:
            text = ", ".join(str(mark) for mark in marks)
            found.insert(0, f"the default [{text}] does not fit {num_layers} layers, give taps explicitly")
        return list(dict.fromkeys(found))


def _twice(taps: object) -> list[int]:
    counts = Counter(taps)  # type: ignore[call-overload]
    return [tap for tap, count in counts.items() if tap is not None and count > 1]
