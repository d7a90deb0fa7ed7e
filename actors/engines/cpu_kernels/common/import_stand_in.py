"""Turns a package into one that imports and does nothing: any submodule, any attribute, any decorator.

SGLang imports triton and torchvision at module level for GPU kernels and image models. A text model on the CPU uses
neither; launching a stand-in's kernel (`kernel[grid](...)`) fails loudly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _EveryAttribute(type):
    """A class whose every attribute is its own name: `InterpolationMode.BICUBIC`."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _StandIn(ModuleType):
    __path__: list[str] = []  # noqa: RUF012 - what makes it a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value: Any
        if name[0].isupper():
            value = _EveryAttribute(name, (), {"__init__": lambda _self, *_args, **_kwargs: None})
        else:
            value = _StandIn(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `@jit` and as `@jit(...)`: the decorated function stays what it is."""
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]
        return _leave_alone


def _leave_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


class _Finder(MetaPathFinder, Loader):
    def __init__(self, package: str) -> None:
        self._prefix = package + "."

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith(self._prefix) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def install(package: str, **attributes: Any) -> None:
    """Make the package being imported a stand-in; `attributes` are what it really has."""
    sys.meta_path.insert(0, _Finder(package))
    module = sys.modules[package]
    module.__class__ = _StandIn
    for name, value in attributes.items():
        setattr(module, name, value)
