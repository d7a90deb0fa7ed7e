"""How a study goes on: which keys of its spec may change meanwhile, and that its models are the same checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from search_spaces.checkpoint_identity import checkpoint_identity
from search_spaces.errors import InputError
from sweeps.home import StudyPlace
from sweeps.spec_fields import show
from sweeps.spec_schema import SweepSpec
from sweeps.spec_yaml import KeyPath, show_path

MODELS = ("target", "draft")
"""The keys of a spec that name a checkpoint."""

FREE_TO_CHANGE: frozenset[KeyPath] = frozenset(
    {
        # by path; the checkpoints themselves are compared
        ("target",),
        ("draft",),
        ("study",),
        ("suspect",),
        ("isolate",),
        ("cluster",),
        ("budget",),
        ("tracking",),
        ("search", "sampler"),
        ("search", "seed"),
        ("search", "stop_at_gain"),
        ("space", "catalog"),
        ("engine", "python"),
        ("engine", "start_method"),
        ("engine", "host"),
        ("engine", "ready_timeout_s"),
        ("engine", "request_timeout_s"),
        ("engine", "stop_grace_s"),
        ("engine", "port"),
        ("workload", "max_attempts"),
    }
)
"""Keys that do not change what a trial means: a study may be continued with other values of them."""


def check_continues(place: StudyPlace, spec: SweepSpec) -> None:
    """InputError, naming the first differing key with both values, when results of `spec` would not be comparable with
    those of the study in `place`. Models may have moved; they must be the same checkpoints."""
    there = place.read_spec()
    differences = [*_models_differ(place, there, spec), *_differ(there.model_dump(), spec.model_dump(), ())]
    if differences:
        path, before, now = differences[0]
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        raise InputError(
            f"study {place.name!r} exists in {place.home} with another {show_path(path)}: {show(before)} there, "
            f"{show(now)} here{more}; give this spec another `study` name"
        )


def check_models(place: StudyPlace, spec: SweepSpec) -> None:
    """InputError when a model has become another checkpoint than the one the study in `place` measures."""
    for path, folder, _ in _models_differ(place, spec, spec):
        raise InputError(
            f"study {place.name!r}: {show_path(path)}: {folder} is not the checkpoint any more that the study was made "
            "with; measure it under another `study` name"
        )


def _models_differ(place: StudyPlace, there: SweepSpec, here: SweepSpec) -> Iterator[tuple[KeyPath, Any, Any]]:
    known = place.records.study() or {}
    for key in MODELS:
        if known.get(key) not in (None, checkpoint_identity(getattr(here, key))):
            yield (key,), getattr(there, key), getattr(here, key)


def continued(place: StudyPlace, spec: SweepSpec) -> SweepSpec:
    """`spec` as the study in `place` goes on with it: where it leaves the number of baselines open, with the number
    that the study has, so that a study that was done is not taken up again for more of them."""
    there = place.read_spec().budget.baselines if place.exists else "auto"
    if spec.budget.baselines != "auto" or there == "auto":
        return spec
    return spec.model_copy(update={"budget": spec.budget.model_copy(update={"baselines": there})})


def _differ(there: Any, here: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any, Any]]:
    if path in FREE_TO_CHANGE or there == here:
        return
    if isinstance(there, dict) and isinstance(here, dict):
        for key in list(dict.fromkeys([*there, *here])):
            yield from _differ(there.get(key), here.get(key), (*path, key))
    else:
        yield path, there, here
