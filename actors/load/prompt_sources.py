"""Where prompts come from: files, folders, datasets and the built-in sets, each read into raw prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_spaces.errors import EnvironmentProblem, InputError
from search_spaces.typed_paths import is_there

Messages = tuple[Mapping[str, str], ...]

DEFAULT_SETS = ("chat", "code", "mathematics")
DATASET_PREFIX = "hf:"
_SETS_FOLDER = Path(__file__).parent / "prompt_sets"
_SPEAKER = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RawPrompt:
    """A prompt as it was read: a text to send as it is, or chat messages that end with the user's turn.

    `where` names it in error messages: file and line, file and entry, or file.
    """

    content: str | Messages
    where: str


def builtin_set_names() -> tuple[str, ...]:
    """The names of the built-in sets, sorted."""
    return tuple(sorted(path.stem for path in _SETS_FOLDER.glob("*.jsonl")))


def read_builtin(name: str) -> tuple[RawPrompt, ...]:
    """A built-in set. InputError when there is none of this name."""
    if name not in builtin_set_names():
        raise InputError(f"no built-in set of prompts is named {name!r}; there are {', '.join(builtin_set_names())}")
    return read_prompts(_SETS_FOLDER / f"{name}.jsonl")


def read_prompts(source: str | Path, text_field: str = "text") -> tuple[RawPrompt, ...]:
    """All prompts of a source, in its order.

    A source is a `.jsonl` file of objects, a `.json` file with a list of them (as ShareGPT's), a folder of `.txt`
    files, or `hf:NAME`, `hf:NAME:SPLIT` or `hf:NAME:CONFIG:SPLIT` for a Hugging Face dataset (`hf:FOLDER` for one saved
    to disk). An object holds its prompt in `text_field`, in `messages` (role and content, which is a text or a list of
    text parts; what follows the last user's turn is dropped), or in `conversations` (ShareGPT; the first user's turn is
    taken, an entry without one is left out). InputError names the file and line of what is wrong; EnvironmentProblem
    when the package `datasets` or the network is missing.
    """
    if str(source).startswith(DATASET_PREFIX):
        return tuple(_dataset(str(source), text_field))
    path = Path(source)
    if not is_there(path):
        raise InputError(f"prompts: {path} does not exist; legal are {_legal_sources()}")
    if path.is_dir():
        return tuple(_folder(path))
    if path.suffix == ".jsonl":
        return tuple(_contents(_jsonl(path), text_field))
    if path.suffix == ".json":
        return tuple(_contents(_json_list(path), text_field))
    raise InputError(f"prompts: {path} has the ending {path.suffix!r}; legal are {_legal_sources()}")


def _legal_sources() -> str:
    sets = ", ".join(builtin_set_names())
    return f"a .jsonl or .json file, a folder of .txt files, hf:DATASET, a count, or a built-in set ({sets})"


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _jsonl(path: Path) -> Iterator[tuple[str, object]]:
    for number, line in enumerate(_text_of(path).split("\n"), start=1):
        if line.strip():
            where = f"{path}:{number}"
            yield where, _decoded(line, where)


def _json_list(path: Path) -> Iterator[tuple[str, object]]:
    rows = _decoded(_text_of(path), str(path))
    if not isinstance(rows, list):
        raise InputError(f"{path}: a list of objects was expected, not {type(rows).__name__}")
    for number, row in enumerate(rows, start=1):
        yield f"{path}: entry {number}", row


def _decoded(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{where}: not JSON: {error.msg} at {place}") from error
    except RecursionError as error:
        raise InputError(f"{where}: nested too deeply") from error


def _folder(path: Path) -> Iterator[RawPrompt]:
    files = sorted(path.glob("*.txt"))
    if not files:
        raise InputError(f"prompts: the folder {path} holds no .txt file")
    for file in files:
        yield RawPrompt(content=_checked_text(_text_of(file), str(file)), where=str(file))


def _contents(rows: Iterable[tuple[str, object]], text_field: str) -> Iterator[RawPrompt]:
    for where, row in rows:
        content = _content(row, text_field, where)
        if content is not None:
            yield RawPrompt(content=content, where=where)


def _content(row: object, text_field: str, where: str) -> str | Messages | None:
    if not isinstance(row, dict):
        raise InputError(f"{where}: an object was expected, not {type(row).__name__}")
    if text_field in row:
        return _checked_text(row[text_field], f"{where}: {text_field}")
    if "messages" in row:
        return _messages(row["messages"], f"{where}: messages")
    for key in ("conversations", "conversation"):
        if key in row:
            return _first_user_turn(row[key], f"{where}: {key}")
    there = ", ".join(repr(key) for key in row) or "nothing"
    raise InputError(f"{where}: no {text_field!r}, 'messages' or 'conversations' in it, only {there}")


def _checked_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where}: a text was expected, not {type(value).__name__}")
    if not value.strip():
        raise InputError(f"{where}: the text is empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: half a surrogate pair at character {error.start}") from error
    return value


def _turns(value: object, where: str) -> Iterator[tuple[object, object]]:
    if not isinstance(value, list):
        raise InputError(f"{where}: a list was expected, not {type(value).__name__}")
    for number, turn in enumerate(value, start=1):
        if not isinstance(turn, dict):
            raise InputError(f"{where}: turn {number} is not an object")
        yield turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))


def _messages(value: object, where: str) -> Messages:
    messages: list[Mapping[str, str]] = []
    for number, (role, content) in enumerate(_turns(value, where), start=1):
        if not isinstance(role, str):
            raise InputError(f"{where}: turn {number} has no role")
        messages.append({"role": role, "content": _content_text(content, f"{where}: turn {number}")})
    last_user = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=-1)
    if last_user < 0:
        raise InputError(f"{where}: no turn has the role 'user'")
    return tuple(messages[: last_user + 1])


def _content_text(content: object, where: str) -> str:
    """A turn's text; out of parts, which may hold nothing but text."""
    if not isinstance(content, list):
        return _checked_text(content, where)
    texts = []
    for number, part in enumerate(content, start=1):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise InputError(f"{where}: part {number} is {kind!r}; legal are parts of the type 'text'")
        texts.append(part["text"])
    return _checked_text("".join(texts), where)


def _first_user_turn(value: object, where: str) -> str | None:
    for role, content in _turns(value, where):
        if _SPEAKER.get(str(role)) == "user" and isinstance(content, str) and content.strip():
            return _checked_text(content, where)
    return None


def _dataset(source: str, text_field: str) -> Iterator[RawPrompt]:
    # a split may be sliced, as in train[:100]
    parts = re.fullmatch(r"([^:]*)(?::([^:\[\]]+)(?=:))?(?::(.+))?", source.removeprefix(DATASET_PREFIX))
    if parts is None or not parts[1]:
        raise InputError(f"prompts: {source} names no dataset; write hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT")
    try:
        import datasets
    except ImportError as error:
        raise EnvironmentProblem(f"{source} needs the package `datasets`: pip install datasets") from error
    rows = _dataset_rows(datasets, parts[1], parts[2], parts[3] or "train", source)
    yield from _contents(((f"{source}: row {number}", row) for number, row in enumerate(rows, start=1)), text_field)


def _dataset_rows(datasets: Any, name: str, config: str | None, split: str, source: str) -> Iterable[object]:
    try:
        if Path(name).is_dir():
            loaded = datasets.load_from_disk(name)
            rows = loaded[split] if isinstance(loaded, dict) else loaded
        else:
            rows = datasets.load_dataset(name, config, split=split)
    except (ValueError, KeyError, FileNotFoundError, datasets.exceptions.DatasetNotFoundError) as error:
        raise InputError(f"prompts: {source} cannot be loaded: {_one_line(error)}") from error
    except OSError as error:
        raise EnvironmentProblem(f"prompts: {source} cannot be reached: {_one_line(error)}") from error
    return rows  # type: ignore[no-any-return]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
