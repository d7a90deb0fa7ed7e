"""Which of several equal candidates `torch.topk` keeps, where equal scores straddle the cut.

Above and below the cut nothing is open. At it, CUDA's radix selection writes the values above the threshold and then
equal ones in the order of their index (aten/src/ATen/native/cuda/TensorTopK.cu, gatherTopK). The CPU kernel
(aten/src/ATen/native/TopKImpl.h) runs `std::partial_sort` when 64 k <= n, else `std::nth_element`, both unstable; what
they keep follows from the algorithms of GNU's libstdc++ (bits/stl_algo.h, bits/stl_heap.h), which are followed here.
Only used for the few pools where it matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

TieRule = Literal["lowest_index", "libstdcxx"]
"""`lowest_index` for servers on CUDA, `libstdcxx` for servers on a CPU under Linux."""


def kept_by_cpu(scores: Sequence[float], count: int) -> frozenset[int]:
    """The indices that `torch.topk(scores, count)` returns on a CPU under Linux; `scores` without NaN."""
    order = _Order(scores)
    if count >= len(scores):
        return frozenset(range(len(scores)))
    if count * 64 <= len(scores):
        order.heap_select(0, count, len(scores))
    elif count > 0:
        order.select_nth(count - 1)
    return frozenset(order.items[:count])


class _Order:
    """Indices being ordered by descending score. Bounds are half-open, as in the library that is followed."""

    def __init__(self, scores: Sequence[float]) -> None:
        self._scores = scores
        self.items = list(range(len(scores)))

    def select_nth(self, nth: int) -> None:
        first, last = 0, len(self.items)
        budget = 2 * (last.bit_length() - 1)
        while last - first > 3:
            if budget == 0:
                self.heap_select(first, nth + 1, last)
                self._swap(first, nth)
                return
            budget -= 1
            cut = self._partition(first, last)
            if cut <= nth:
                first = cut
            else:
                last = cut
        self._insertion_sort(first, last)

    def heap_select(self, first: int, middle: int, last: int) -> None:
        """The best `middle - first` of the range come to its front, as a heap whose root is the worst of them."""
        size = middle - first
        for parent in range((size - 2) // 2, -1, -1) if size >= 2 else ():
            self._sift(first, parent, size, self.items[first + parent])
        for at in range(middle, last):
            if self._before(self.items[at], self.items[first]):
                value, self.items[at] = self.items[at], self.items[first]
                self._sift(first, 0, size, value)

    def _before(self, one: int, other: int) -> bool:
        return self._scores[one] > self._scores[other]

    def _swap(self, i: int, j: int) -> None:
        self.items[i], self.items[j] = self.items[j], self.items[i]

    def _partition(self, first: int, last: int) -> int:
        self._median_to_front(first, first + 1, first + (last - first) // 2, last - 1)
        pivot = self.items[first]
        low, high = first + 1, last
        while True:
            while self._before(self.items[low], pivot):
                low += 1
            high -= 1
            while self._before(pivot, self.items[high]):
                high -= 1
            if low >= high:
                return low
            self._swap(low, high)
            low += 1

    def _median_to_front(self, front: int, a: int, b: int, c: int) -> None:
        x, y, z = self.items[a], self.items[b], self.items[c]
        if self._before(x, y):
            chosen = b if self._before(y, z) else c if self._before(x, z) else a
        else:
            chosen = a if self._before(x, z) else c if self._before(y, z) else b
        self._swap(front, chosen)

    def _insertion_sort(self, first: int, last: int) -> None:
        for at in range(first + 1, last):
            value, hole = self.items[at], at
            while hole > first and self._before(value, self.items[hole - 1]):
                self.items[hole] = self.items[hole - 1]
                hole -= 1
            self.items[hole] = value

    def _sift(self, first: int, hole: int, size: int, value: int) -> None:
        """Move the hole down to a leaf along the worse children, then `value` up from there."""
        items, top, child = self.items, hole, hole
        while child < (size - 1) // 2:
            child = 2 * (child + 1)
            if self._before(items[first + child], items[first + child - 1]):
                child -= 1
            items[first + hole], hole = items[first + child], child
        if size % 2 == 0 and child == (size - 2) // 2:
            child = 2 * child + 1
            items[first + hole], hole = items[first + child], child
        parent = (hole - 1) // 2
        while hole > top and self._before(items[first + parent], value):
            items[first + hole], hole = items[first + parent], parent
            parent = (hole - 1) // 2
        items[first + hole] = value
