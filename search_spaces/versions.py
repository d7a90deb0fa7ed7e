"""SGLang versions as comparable keys, for rules that hold from one release to another."""

from __future__ import annotations

import re
from functools import lru_cache

from search_spaces.errors import InputError

READ_VERSION = "0.5.23"
"""The release whose source the rules were read in last; a newer one is taken to behave like it."""

_FORM = re.compile(
    r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.post(\d+))?"
    r"(?:[.-]?(?:a|b|rc|alpha|beta)\d*)?(?:\.dev\d*)?(?:\+[\w.]+)?"
)


@lru_cache
def version_key(version: str) -> tuple[int, int, int, int]:
    """(major, minor, patch, post). Development and candidate builds count as the release they lead to.

    InputError when the text is not a version.
    """
    match = _FORM.fullmatch(version.strip())
    if match is None:
        raise InputError(f"SGLang version: {version!r} is not a version such as {READ_VERSION}")
    major, minor, patch, post = (int(part or 0) for part in match.groups())
    return (major, minor, patch, post)


def holds(version: str, since: str | None, until: str | None) -> bool:
    """True when `since` <= `version` < `until`; None is open."""
    key = version_key(version)
    return (since is None or version_key(since) <= key) and (until is None or key < version_key(until))
