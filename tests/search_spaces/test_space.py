from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.errors import InputError
from search_spaces.space import SearchSpace


def space(**changed: Any) -> SearchSpace:
    values: dict[str, Any] = {
        "layout": ("default",),
        "num_steps": (1, 2),
        "eagle_topk": (1,),
        "num_draft_tokens": (2, 4),
        "tp_size": (1,),
    }
    return SearchSpace(**(values | changed))


dimension = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True).map(tuple)


@given(dimension, dimension, dimension, dimension, st.sampled_from([("default",), ("0,3,7", "shipped")]))
def test_the_product_is_whole_and_without_repeats(a: Any, b: Any, c: Any, tp: Any, layout: Any) -> None:
    whole = space(
        num_steps=a, eagle_topk=b, num_draft_tokens=c, tp_size=tp, layout=layout, flags=(("page_size", (1, 64)),)
    )
    settings = list(whole.settings())
    assert len(settings) == len(set(settings)) == whole.size == 2 * len(a) * len(b) * len(c) * len(tp) * len(layout)
    assert [setting.tp_size for setting in settings] == [size for size in tp for _ in range(whole.size // len(tp))]


def test_the_hash_follows_the_content() -> None:
    assert space().content_hash == space().content_hash
    others = [
        space(num_steps=(2, 1)),
        space(num_steps=(1, 2, 3)),
        space(num_steps=(1, None)),
        space(layout=("shipped",)),
        space(flags=(("page_size", (1,)),)),
        space(flags=(("page_size", (True,)),)),
        space(flags=(("chunked_prefill_size", (1,)),)),
    ]
    assert len({other.content_hash for other in [space(), *others]}) == len(others) + 1
    assert space().content_hash == "8d9d1ad96091e38f"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"num_steps": ()}, ["space.num_steps", "no values"]),
        ({"layout": ()}, ["space.layout", "no values"]),
        ({"layout": ("0,x",)}, ["'0,x'"]),
        ({"num_steps": (0,)}, ["space.num_steps", "0 is not a whole number"]),
        ({"eagle_topk": (True,)}, ["space.eagle_topk", "True"]),
        ({"num_draft_tokens": (4.0,)}, ["space.num_draft_tokens", "4.0"]),
        ({"tp_size": (None,)}, ["space.tp_size", "None"]),
        ({"num_steps": (3, 3)}, ["space.num_steps", "repeated"]),
        ({"flags": (("tp_size", (1,)),)}, ["space.flags.tp_size", "not a further flag"]),
        ({"flags": (("page_size", ()),)}, ["space.flags.page_size", "no values"]),
        ({"flags": (("page_size", (1,)), ("device", ("cpu",)))}, ["space.flags", "sorted"]),
    ],
)
def test_impossible_spaces_are_refused_in_one_line(changed: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        space(**changed)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)
