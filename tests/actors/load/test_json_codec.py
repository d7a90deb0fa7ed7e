"""The codec gives the same with and without orjson."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from actors.load import json_codec


@pytest.fixture(params=[True, False], ids=["orjson", "standard library"])
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if request.param:
        pytest.importorskip("orjson")
    else:
        monkeypatch.setitem(sys.modules, "orjson", None)
    spec = importlib.util.find_spec(json_codec.__name__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_compact_utf8_both_ways(codec: ModuleType) -> None:
    value = {"text": 'wörds 🦙 "x"\n', "n": [1, 2.5, None, True]}
    encoded = codec.encode_json(value)
    assert encoded == '{"text":"wörds 🦙 \\"x\\"\\n","n":[1,2.5,null,true]}'.encode()
    assert codec.decode_json(encoded) == value


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}"])
def test_what_is_not_json_is_a_value_error(codec: ModuleType, text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is the library's own
        codec.decode_json(text)
