"""Generated text for the demo pair: documents that a rule unrolls for ever from a few random parameters.

Every document is a stream of lines. A line follows from the one or two lines before it (a stride carried on, a list
copied or mirrored), so a greedy continuation is predictable without repeating itself: values move on a ring of
`RING` numbers with strides that are coprime to it.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from math import gcd

RING = 64
STRIDES = tuple(sign * size for size in (1, 3, 5) for sign in (1, -1))
NAMES = ("ann", "bob", "cleo", "dan", "eve", "finn", "gus", "hana", "ida", "jon", "kim", "lea")
THINGS = ("ash", "bay", "clay", "dew", "elm", "fern", "gold", "hill", "iris", "jade", "kelp", "leaf")
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
KEYWORDS = ("count", "row", ":", ";", "pair", "nest", "copy", "say", "again", ".")
LEXICON = (*map(str, range(RING)), *NAMES, *THINGS, *(mark for pair in BRACKETS for mark in pair), *KEYWORDS)

LINE_ENDS = (";", ".")
PROMPT_WORDS, LONGEST_PROMPT = 24, 48
PROMPT_SEED = 1000
HELD_OUT_SHARE = 16
"""One document in this many is held out of training, chosen by a checksum of its parameters."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """The start of an endless document. `header` words hold the parameters; all words after them follow by rule."""

    kind: str
    words: tuple[str, ...]
    header: int
    held_out: bool

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class _Track:
    """A number that moves on the ring by a fixed stride."""

    start: int
    stride: int

    def at(self, index: int) -> str:
        return str((self.start + self.stride * index) % RING)

    def run(self, first: int, length: int) -> list[str]:
        return [self.at(index) for index in range(first, first + length)]


Line = list[str]
Lines = Callable[[random.Random], Iterator[Line]]


def _track(rng: random.Random) -> _Track:
    return _Track(rng.randrange(RING), rng.choice(STRIDES))


def _count_rows(rng: random.Random) -> Iterator[Line]:
    """`row 41 : 17 24 31 38 ; row 42 : 45 52 59 66 ;`: one track cut into rows of equal width, rows numbered."""
    track, row, width = _track(rng), _Track(rng.randrange(RING), 1), rng.randint(3, 5)
    return (["row", row.at(i), ":", *track.run(i * width, width), ";"] for i in count())


def _pairs(rng: random.Random) -> Iterator[Line]:
    """`ann 12 bob 90 ; ann 15 bob 83 ;`: two tracks side by side."""
    (left, right), first, second = rng.sample(NAMES, 2), _track(rng), _track(rng)
    return ([left, first.at(i), right, second.at(i), ";"] for i in count())


def _nests(rng: random.Random) -> Iterator[Line]:
    """`( 12 [ 19 { 26 } 26 ] 19 ) 12 ;`: brackets opened along a track and closed as a mirror."""
    track, depth = _track(rng), rng.randint(2, 3)

    def line(index: int) -> Line:
        values = track.run(index * depth, depth)
        opened = [word for pair, value in zip(BRACKETS, values, strict=False) for word in (pair[0], value)]
        closed = [word for pair, value in zip(BRACKETS, values, strict=False) for word in (value, pair[1])]
        return [*opened, *reversed(closed), ";"]

    return map(line, count())


def _copies(rng: random.Random) -> Iterator[Line]:
    """`say ash 12 bay 15 again ash 12 bay 15 .`: a list that is said twice; the words stay, the track runs on."""
    words, track = rng.sample(THINGS, rng.randint(2, 3)), _track(rng)

    def line(index: int) -> Line:
        values = track.run(index * len(words), len(words))
        said = [word for pair in zip(words, values, strict=True) for word in pair]
        return ["say", *said, "again", *said, "."]

    return map(line, count())


KINDS: dict[str, tuple[Lines, int]] = {
    "count": (_count_rows, 1),
    "pair": (_pairs, 2),
    "nest": (_nests, 1),
    "copy": (_copies, 2),
}
"""By first word: the rule, and how many lines hold all of its parameters."""

if any(gcd(stride, RING) != 1 for stride in STRIDES):
    raise AssertionError("a stride that divides the ring would loop")


def document(rng: random.Random, *, length: int, kind: str | None = None) -> Document:
    """One random document of exactly `length` words."""
    kind = kind or rng.choice(tuple(KINDS))
    lines, header_lines = KINDS[kind]
    stream = lines(rng)
    header = [kind, *(word for line in islice(stream, header_lines) for word in line)]
    words = tuple(islice((word for part in ([header], stream) for line in part for word in line), length))
    held_out = zlib.crc32(" ".join(header).encode()) % HELD_OUT_SHARE == 0
    return Document(kind=kind, words=words, header=len(header), held_out=held_out)


def documents(seed: int, *, length: int, held_out: bool) -> Iterator[Document]:
    """An endless, reproducible stream of documents of one side of the split, kinds in turn."""
    rng = random.Random(seed)  # noqa: S311 - text, not secrets
    for kind in (kind for _ in count() for kind in KINDS):
        while (drawn := document(rng, length=length, kind=kind)).held_out is not held_out:
            pass
        yield drawn


def prompt_length(document: Document) -> int:
    """Where a prompt ends: with the line that completes the header and at least `PROMPT_WORDS` words."""
    least = max(document.header, PROMPT_WORDS)
    return next(end for end, word in enumerate(document.words, start=1) if end >= least and word in LINE_ENDS)


def held_out_documents(amount: int, *, length: int) -> tuple[Document, ...]:
    """The first `amount` documents of the demo's own prompts, kinds in turn, no prompt twice; any length."""
    found: dict[tuple[str, ...], Document] = {}
    stream = documents(PROMPT_SEED, length=max(length, LONGEST_PROMPT), held_out=True)
    while len(found) < amount:
        drawn = next(stream)
        found.setdefault(drawn.words[: prompt_length(drawn)], replace(drawn, words=drawn.words[:length]))
    return tuple(found.values())


def prompts(amount: int) -> tuple[str, ...]:
    """`amount` distinct held-out prompts: the beginnings of `held_out_documents`."""
    drawn = held_out_documents(amount, length=LONGEST_PROMPT)
    return tuple(" ".join(document.words[: prompt_length(document)]) for document in drawn)
