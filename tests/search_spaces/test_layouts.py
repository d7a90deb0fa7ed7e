from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.config import layout_label
from search_spaces.errors import InputError
from search_spaces.layouts import parse_layout_label


def test_labels_are_words_or_taps() -> None:
    assert parse_layout_label("default") == "default"
    assert parse_layout_label("shipped") == "shipped"
    assert parse_layout_label("0,3,31") == (0, 3, 31)
    assert parse_layout_label("[0, 3, 31]") == (0, 3, 31)
    assert parse_layout_label("5,2") == (5, 2)


@pytest.mark.parametrize("text", ["", "Default", "0,,3", "-1,2", "0;3", "1.5", "0,3,"])
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_layout_label(text)
    assert repr(text) in str(caught.value)
    assert "0,3,7" in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.lists(st.integers(0, 200), min_size=1).map(tuple))
def test_a_label_names_its_taps(taps: tuple[int, ...]) -> None:
    assert parse_layout_label(layout_label(taps)) == taps
