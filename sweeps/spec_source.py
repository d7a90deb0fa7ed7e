"""A spec as text: the file, the overrides, the tree they make together, and where each value came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from actors.load.prompt_sources import DATASET_PREFIX, builtin_set_names
from search_spaces.errors import InputError
from search_spaces.ready_spaces import CATALOG, ready_space_names
from search_spaces.typed_paths import expanded, is_there
from sweeps.nearest import nearest
from sweeps.overrides import Override, apply_overrides, parse_overrides
from sweeps.spec_checks import problems_between
from sweeps.spec_fields import show
from sweeps.spec_problems import MISSING, Problem, explain
from sweeps.spec_schema import SweepSpec
from sweeps.spec_yaml import Document, KeyPath, read_yaml, show_path

SECTIONS = frozenset({"engine", "cluster", "space", "workload", "objective", "budget", "search", "tracking"})


class SpecSource:
    """Reads once, then parses; every problem is reported at the line or the `--set` that caused it."""

    def __init__(self, document: Document, overrides: tuple[Override, ...], path: Path) -> None:
        self._document = document
        self._overrides = overrides
        self._path = path.absolute()

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str]) -> SpecSource:
        """InputError when the file cannot be read, is not YAML, or is not a mapping."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from error
        document = read_yaml(text, str(path))
        if document.value is None:
            raise InputError(f"{path}:1: the spec is empty; it needs target, draft and space")
        if not isinstance(document.value, Mapping):
            raise InputError(f"{path}:1: a spec is a mapping of keys, not {show(document.value)}")
        return cls(document, parse_overrides(overrides), path)

    @property
    def folder(self) -> Path:
        """The folder that relative paths in the spec are relative to."""
        return self._path.parent

    @property
    def relative_files(self) -> dict[str, Path]:
        """What the spec names by a path relative to itself, by key path; repo ids and data sets are not among them."""
        tree = apply_overrides(self._document.value, self._overrides)
        found = {}
        for section, key, absolute in self._path_keys():
            place = tree.get(section) if section else tree
            text = place.get(key) if isinstance(place, Mapping) else None
            if isinstance(text, str) and not expanded(text).is_absolute() and absolute(text) != text:
                found[f"{section}.{key}".lstrip(".")] = Path(absolute(text))
        return found

    def parse(self) -> SweepSpec:
        """The checked spec. Only the catalogue is read and only the existence of relative paths is looked at."""
        tree = self._complete(apply_overrides(self._document.value, self._overrides))
        try:
            spec = SweepSpec.model_validate(tree)
        except ValidationError as error:
            raise self.refusal([explain(details, SweepSpec) for details in error.errors(include_url=False)]) from None
        problems = list(problems_between(spec))
        if problems:
            raise self.refusal(problems)
        return spec

    def refusal(self, problems: Sequence[Problem]) -> InputError:
        """One line for the first problem in the file's order, and how many more there are.

        A missing key comes last: an unknown one is most often the same key misspelt.
        """
        path, message = min(problems, key=lambda problem: (problem[1] == MISSING, self._document.line(problem[0])))
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return InputError(f"{self._where(path)}: {show_path(path)}: {message}{more}")

    def _where(self, path: KeyPath) -> str:
        """The last override that set `path` or something around it, else the file and line."""
        for override in reversed(self._overrides):
            if path[: len(override.path)] == override.path:
                return override.source
        return self._document.where(path)

    def _complete(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Fills in what the schema cannot: blank sections, the study's name, the catalogue, absolute paths."""
        filled = {key: {} if value is None and key in SECTIONS else value for key, value in tree.items()}
        filled.setdefault("study", self._path.stem)
        if isinstance(filled.get("space"), Mapping):
            filled["space"] = self._with_catalog(filled["space"])
        for section, key, absolute in self._path_keys():
            if section and isinstance(filled.get(section), Mapping):
                filled[section] = dict(filled[section])
            try:
                _replace_text(filled.get(section) if section else filled, key, absolute)
            except InputError as error:
                raise self.refusal([((section, key) if section else (key,), str(error))]) from error
        return filled

    def _path_keys(self) -> tuple[tuple[str, str, Callable[[str], str]], ...]:
        return (
            ("", "target", self._model),
            ("", "draft", self._model),
            ("engine", "python", self._interpreter),
            ("workload", "prompts", self._prompts),
        )

    def _with_catalog(self, space: Mapping[str, Any]) -> Mapping[str, Any]:
        name = space.get("catalog")
        if not isinstance(name, str):
            return space
        names = ready_space_names()
        if name not in names:
            raise self.refusal([(("space", "catalog"), f"no ready space is called {show(name)}{nearest(name, names)}")])
        ready = read_yaml((CATALOG / f"{name}.yaml").read_text(encoding="utf-8"), f"catalog/{name}.yaml")
        return {**ready.value, **space}

    def _model(self, text: str) -> str:
        """A path when it looks like one or exists beside the spec; else it is a repo id and stays as it is."""
        if text.startswith((".", "/", "~")) or is_there(self.folder / text):
            return self._file(text)
        return text

    def _interpreter(self, text: str) -> str:
        return self._file(text) if "/" in text else text

    def _prompts(self, text: str) -> str:
        if text in builtin_set_names():
            return text
        if not text.startswith(DATASET_PREFIX):
            return self._file(text)
        name, colon, rest = text.removeprefix(DATASET_PREFIX).partition(":")
        # a dataset that was saved to a folder, else one of the hub's
        saved = bool(name) and (name.startswith((".", "~")) or _is_folder(self.folder / name))
        return f"{DATASET_PREFIX}{self._file(name)}{colon}{rest}" if saved else text

    def _file(self, text: str) -> str:
        # no resolve(): a virtual environment's python is a symlink that must stay one
        return str(self.folder / expanded(text))


def _is_folder(path: Path) -> bool:
    return is_there(path) and path.is_dir()


def _replace_text(mapping: object, key: str, change: Callable[[str], str]) -> None:
    if isinstance(mapping, dict) and isinstance(mapping.get(key), str) and mapping[key]:
        mapping[key] = change(mapping[key])
