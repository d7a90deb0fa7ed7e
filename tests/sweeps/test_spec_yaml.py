from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.errors import InputError
from sweeps.spec_yaml import read_yaml, show_path


def test_values_and_the_line_of_every_key() -> None:
    document = read_yaml("a: 1\nb:\n  c: [x, 2.5]\n  d: null\n", "f.yaml")
    assert document.value == {"a": 1, "b": {"c": ("x", 2.5), "d": None}}
    assert document.where(("b", "c")) == "f.yaml:3"
    assert document.where(("b", "c", 1)) == "f.yaml:3"
    assert document.where(("b", "missing", "deep")) == "f.yaml:2"
    assert document.where(("nowhere",)) == "f.yaml:1"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("1E-2", 0.01),
        ("-2e+1", -20.0),
        ("1.5", 1.5),
        ("2026-11-29", "2026-11-29"),
        ("0.5.23", "0.5.23"),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("off", "off"),
        ("n", "n"),
        ("'1'", "1"),
        ("", None),
        ("127.0.0.1:6379", "127.0.0.1:6379"),
        ("!!str 3", "3"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    read = read_yaml(text, "f").value
    assert read == value
    assert type(read) is type(value)


def test_keys_are_the_text_that_was_written() -> None:
    assert read_yaml("no: 1\n3: 2\nnull: 3\n", "f").value == {"no": 1, "3": 2, "null": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: a: key given twice (first on line 1)"),
        ("x:\n  a: 1\n  a: 1\n", "f.yaml:3: x.a: key given twice (first on line 2)"),
        ("a: [1, 2\nb: 3\n", "f.yaml:2: not valid YAML: did not find expected ',' or ']'"),
        ("a: 1\n\tb: 2\n", "f.yaml:2: not valid YAML: "),
        ("a: !!python/object:os.system 1\n", "f.yaml:1: a: the YAML tag !!python/object:os.system is not supported"),
        ("a: &x {b: *x}\n", "f.yaml:1: a.b: an alias that contains itself"),
        ("a: &x [*x]\n", "f.yaml:1: a[0]: an alias that contains itself"),
        ("base: &b {k: 1}\nother:\n  <<: *b\n", "f.yaml:3: other: a key must be a plain name"),
        ("? [1, 2]\n: 3\n", "f.yaml:1: a key must be a plain name"),
        ("a: !!int x\n", "f.yaml:1: a: 'x' cannot be read as int"),
        ("a: " + "9" * 5000, "f.yaml:1: a: "),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: not valid YAML: "),
        ("a: \x01", "f.yaml:1: not valid YAML: "),
        ("[" * 100_000, "f.yaml:1: "),
    ],
)
def test_refusals_are_one_line_with_the_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_yaml(text, "f.yaml")
    assert str(caught.value).startswith(message) or message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_aliases_work_and_a_bomb_of_them_does_not_explode() -> None:
    assert read_yaml("a: &x [1]\nb: *x\n", "f").value == {"a": (1,), "b": (1,)}
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(InputError, match="more than 100000 values"):
        read_yaml("\n".join(levels), "f")


def test_paths_are_shown_as_users_write_them() -> None:
    assert show_path(("space", "layout", 0, 2)) == "space.layout[0][2]"


# PyYAML leaves a text like 1e3 without quotes; here that is a number
TEXTS = st.text(st.characters(codec="ascii"), max_size=8).filter(lambda text: not re.match(r"[-+.\d]+[eE]", text))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(PLAIN)
def test_reads_what_pyyaml_writes(value: object) -> None:
    assert read_yaml(yaml.safe_dump(value), "f").value == _tuples(value)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_value_or_a_refusal(text: str) -> None:
    refusal = "f.yaml:1: a value after all"
    try:
        read_yaml(text, "f.yaml")
    except InputError as error:
        refusal = str(error)
    assert refusal.startswith("f.yaml:")
    assert "\n" not in refusal


def _tuples(value: object) -> object:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, dict) else value
