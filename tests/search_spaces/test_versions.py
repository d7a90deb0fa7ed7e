from __future__ import annotations

import pytest

from search_spaces.errors import InputError
from search_spaces.versions import holds, version_key


def test_order_of_releases() -> None:
    ordered = ["0.4.10", "0.5.9", "0.5.12", "0.5.12.post1", "0.5.13", "0.5.23", "0.6"]
    assert [version_key(text) for text in ordered] == sorted(version_key(text) for text in ordered)
    assert len({version_key(text) for text in ordered}) == len(ordered)


@pytest.mark.parametrize("text", ["0.5.23rc1", "0.5.23.dev12+g1a2b3c", "v0.5.23", "0.5.23+cu130"])
def test_builds_count_as_their_release(text: str) -> None:
    assert version_key(text) == (0, 5, 23, 0)


@pytest.mark.parametrize("text", ["", "latest", "0", "0.5.x", "0.5.23; rm"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(InputError, match="not a version"):
        version_key(text)


def test_bounds_include_the_first_and_exclude_the_last() -> None:
    assert holds("0.5.13", "0.5.13", "0.5.17")
    assert holds("0.5.16", "0.5.13", "0.5.17")
    assert not holds("0.5.17", "0.5.13", "0.5.17")
    assert not holds("0.5.12.post1", "0.5.13", None)
    assert holds("9.9.9", None, None)
