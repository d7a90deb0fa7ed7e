"""Names of target classes as people write them, resolved to architectures."""

from __future__ import annotations

import re
from functools import lru_cache

from search_spaces.dialects import Dialect, find_dialect, supported_architectures
from search_spaces.errors import InputError
from search_spaces.versions import READ_VERSION, version_key

_SUFFIX = re.compile(r"for(causallm|conditionalgeneration)$")
_ALIASES = {
    "kimi": "kimik25",
    "kimik2": "kimik25",
    "kimik2.5": "kimik25",
    "kimik2.6": "kimik25",
    "deepseek": "deepseekv3",
    "llama3": "llama",
}


def _plain(name: str) -> str:
    plain = re.sub(r"[\s_-]", "", name.lower())
    plain = _ALIASES.get(plain, plain)
    return _SUFFIX.sub("", plain.replace(".", ""))


@lru_cache
def find_architecture(name: str, sglang_version: str) -> str | None:
    """The architecture behind an architecture's own name or a module's (`llama`, `deepseek_v2`); None when unknown."""
    known = supported_architectures(sglang_version)
    if name in known:
        return name
    plain = _plain(name)
    return next((architecture for architecture in known if _plain(architecture) == plain), None)


def known_version(version: str | None) -> str:
    """The version to judge by: as given when it can be read, else the one our rules were read in."""
    try:
        version_key(version or READ_VERSION)
    except InputError:
        return READ_VERSION
    return version or READ_VERSION


def dialect_for(name: str | None, version: str | None) -> Dialect | None:
    """The dialect of a class named in a row, None when the class is not given or not known."""
    if name is None:
        return None
    judged = known_version(version)
    architecture = find_architecture(name, judged)
    return None if architecture is None else find_dialect(architecture, judged)
