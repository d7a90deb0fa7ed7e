"""Prompts of a workload: sampled by a seed, deduplicated, filtered by length, with a held-out part for the warm-up."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from actors.load.chat_template import TargetTokenizer, has_chat_template
from actors.load.prompt_sources import DEFAULT_SETS, RawPrompt, builtin_set_names, read_builtin, read_prompts
from actors.load.workload import Prompt, prompt_of
from search_spaces.errors import InputError

WARMUP_COUNT = 4


@dataclass(frozen=True, kw_only=True)
class LengthLimits:
    """How long a prompt may be, in characters and in the target's tokens, bounds included; None is no bound."""

    min_chars: int | None = None
    max_chars: int | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None

    @property
    def in_tokens(self) -> bool:
        return self.min_tokens is not None or self.max_tokens is not None


@dataclass(frozen=True, kw_only=True)
class PromptSet:
    """Chosen prompts. `warmup` holds none of `prompts`, and no text occurs twice.

    `template_hash` names the chat template the texts went through, None when none did. `duplicates` and `filtered`
    count what was passed over while choosing.
    """

    source: str
    prompts: tuple[Prompt, ...] = field(repr=False)
    warmup: tuple[Prompt, ...] = field(repr=False)
    template_hash: str | None
    duplicates: int
    filtered: int


def choose_prompts(
    source: int | str | Path,
    *,
    seed: int,
    count: int | None = None,
    warmup_count: int = WARMUP_COUNT,
    text_field: str = "text",
    target_path: Path | None = None,
    limits: LengthLimits | None = None,
) -> PromptSet:
    """Prompts from whatever the user names: a count of built-in ones, a built-in set's name, a path or `hf:DATASET`.

    InputError when the source is wrong or holds too few; see `read_prompts` for the kinds of sources.
    """
    if isinstance(source, int):
        if isinstance(source, bool) or (count is not None and count != source):
            raise InputError(f"prompts: {source} is a count of prompts already")
        return builtin_prompts(source, seed, warmup_count=warmup_count, target_path=target_path, limits=limits)
    if str(source) in builtin_set_names():
        return builtin_prompts(
            count, seed, sets=(str(source),), warmup_count=warmup_count, target_path=target_path, limits=limits
        )
    return load_prompts(
        source,
        seed=seed,
        count=count,
        warmup_count=warmup_count,
        text_field=text_field,
        target_path=target_path,
        limits=limits,
    )


def builtin_prompts(
    count: int | None,
    seed: int,
    *,
    sets: Sequence[str] = DEFAULT_SETS,
    warmup_count: int = WARMUP_COUNT,
    target_path: Path | None = None,
    limits: LengthLimits | None = None,
) -> PromptSet:
    """`count` built-in prompts (all that are left after the warm-up when None), in equal parts from the sets.

    They go through the target's chat template when its folder has one. InputError when there are too few.
    """
    as_chat = target_path is not None and has_chat_template(target_path)
    groups = [read_builtin(name) for name in sets]
    return _choose(
        f"built-in {', '.join(sets)}",
        groups,
        count=count,
        seed=seed,
        warmup_count=warmup_count,
        target_path=target_path,
        limits=limits,
        as_chat=as_chat,
    )


def load_prompts(
    source: str | Path,
    *,
    seed: int,
    count: int | None = None,
    warmup_count: int = WARMUP_COUNT,
    text_field: str = "text",
    target_path: Path | None = None,
    limits: LengthLimits | None = None,
) -> PromptSet:
    """`count` prompts of a file, folder or dataset (all that are left after the warm-up when None).

    Texts are sent as they are; `messages` go through the chat template of the target's folder `target_path`, which
    also counts tokens for `limits`. InputError names file and line of what is wrong.
    """
    return _choose(
        str(source),
        [read_prompts(source, text_field)],
        count=count,
        seed=seed,
        warmup_count=warmup_count,
        target_path=target_path,
        limits=limits,
        as_chat=False,
    )


def _choose(
    source: str,
    groups: Sequence[Sequence[RawPrompt]],
    *,
    count: int | None,
    seed: int,
    warmup_count: int,
    target_path: Path | None,
    limits: LengthLimits | None,
    as_chat: bool,
) -> PromptSet:
    if (count is not None and count < 1) or warmup_count < 0:
        raise InputError(f"prompts: {count} to measure and {warmup_count} to warm up is no choice")
    texts = _Texts(TargetTokenizer(target_path) if target_path else None, limits or LengthLimits(), as_chat=as_chat)
    wanted = None if count is None else warmup_count + count
    chosen = tuple(itertools.islice(texts.fitting(_shuffled(groups, seed)), wanted))
    if len(chosen) <= warmup_count or (wanted is not None and len(chosen) < wanted):
        raise InputError(
            f"prompts: {source} has {len(chosen)} usable prompts ({texts.duplicates} repeated, {texts.filtered} of a "
            f"wrong length), but {warmup_count} are needed for the warm-up and {count or 'some'} to measure"
        )
    return PromptSet(
        source=source,
        prompts=chosen[warmup_count:],
        warmup=chosen[:warmup_count],
        template_hash=texts.template_hash,
        duplicates=texts.duplicates,
        filtered=texts.filtered,
    )


class _Texts:
    """Turns raw prompts into those that are sent, passing over repeats and wrong lengths and counting them."""

    def __init__(self, tokenizer: TargetTokenizer | None, limits: LengthLimits, *, as_chat: bool) -> None:
        self._tokenizer = tokenizer
        self._limits = limits
        self._as_chat = as_chat
        self.template_hash: str | None = None
        self.duplicates = 0
        self.filtered = 0

    def fitting(self, raw_prompts: Iterator[RawPrompt]) -> Iterator[Prompt]:
        seen: set[str] = set()
        for raw in raw_prompts:
            text = self._text(raw)
            if text in seen:
                self.duplicates += 1
            elif not self._fits(text):
                self.filtered += 1
            else:
                seen.add(text)
                yield prompt_of(text)

    def _text(self, raw: RawPrompt) -> str:
        content = raw.content
        if isinstance(content, str):
            if not self._as_chat:
                return content
            content = ({"role": "user", "content": content},)
        if self._tokenizer is None:
            raise InputError(f"{raw.where}: messages need the chat template of a target, and no target is given")
        text = self._tokenizer.render(content, raw.where)
        self.template_hash = self._tokenizer.template_hash
        return text

    def _fits(self, text: str) -> bool:
        if not _within(len(text), self._limits.min_chars, self._limits.max_chars):
            return False
        if not self._limits.in_tokens:
            return True
        if self._tokenizer is None:
            raise InputError("prompts: a limit in tokens needs the tokenizer of a target, and no target is given")
        return _within(self._tokenizer.count(text), self._limits.min_tokens, self._limits.max_tokens)


def _within(length: int, low: int | None, high: int | None) -> bool:
    return (low is None or length >= low) and (high is None or length <= high)


def _shuffled(groups: Sequence[Sequence[RawPrompt]], seed: int) -> Iterator[RawPrompt]:
    """All prompts, one of each group in turn, each group in an order that seed and content alone determine.

    So the order of a file's lines does not matter, a smaller count is the beginning of a larger one, and no version of
    Python chooses otherwise.
    """

    def rank(raw: RawPrompt) -> bytes:
        content = raw.content if isinstance(raw.content, str) else json.dumps(raw.content, sort_keys=True)
        return hashlib.sha256(f"{seed}\n{content}".encode()).digest()

    ordered = [sorted(group, key=rank) for group in groups]
    for row in itertools.zip_longest(*ordered):
        yield from (raw for raw in row if raw is not None)
