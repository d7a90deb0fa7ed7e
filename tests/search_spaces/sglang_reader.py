"""Run as a script in an interpreter with SGLang: prints what SGLang itself captures and resolves, as JSON on stdout.

Input on stdin: {"layers": 8, "argvs": [[...], ...]}. Nothing of specsweep is imported here.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HOOK = "set_eagle3_layers_to_capture"
# these hand the call on to the class of their language model
WRAPS = {
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "KimiK25ForConditionalGeneration": "DeepseekV3ForCausalLM",
    "Llama4ForConditionalGeneration": "Llama4ForCausalLM",
}
# classes whose own module holds another model with a capture loop
BODIES = {"GlmMoeDsaForCausalLM": ("sglang.srt.models.deepseek_v2", "DeepseekV2Model")}
LAST_RANK = types.SimpleNamespace(is_last_rank=True, world_size=1)


def import_models() -> tuple[dict[str, type], dict[str, str]]:
    """Every registered model class, and the modules that cannot be imported here with the reason."""
    import torch

    # CPU operators that only a machine with AMX has are looked up at import time and never called here
    namespace = type(torch.ops.sgl_kernel)
    found = namespace.__getattr__

    def lenient(self: Any, name: str) -> Any:
        try:
            return found(self, name)
        except AttributeError:
            if not name.endswith("_cpu"):
                raise
            return lambda *args, **kwargs: None

    namespace.__getattr__ = lenient
    from sglang.srt.models import registry

    models = registry.import_model_classes("sglang.srt.models")
    folder = Path(importlib.import_module("sglang.srt.models").__path__[0])
    loaded = {name.rpartition(".")[2] for name in sys.modules if name.startswith("sglang.srt.models.")}
    broken = {}
    for path in sorted(folder.glob("*.py")):
        if path.stem not in loaded and path.stem != "__init__":
            broken[path.stem] = path.read_text(encoding="utf-8")
    return models, broken


def body_of(cls: type) -> type:
    """The class of the model inside, whose `forward` runs the blocks and captures."""
    if cls.__name__ in BODIES:
        module_name, name = BODIES[cls.__name__]
        return getattr(sys.modules[module_name], name)
    parameter = inspect.signature(cls.__init__).parameters.get("language_model_cls")
    if parameter is not None and isinstance(parameter.default, type):
        return parameter.default
    if isinstance(getattr(cls, "body_cls", None), type):
        return cls.body_cls
    for owner in cls.__mro__:
        module = sys.modules.get(owner.__module__)
        bodies = {
            value
            for value in vars(module).values()
            if isinstance(value, type) and value.__name__.endswith("Model") and "to_capture" in loop_source(value)
        }
        # a module may import the body of another one that its own inherits from
        own = {body for body in bodies if body.__module__ == owner.__module__} or bodies
        if own:
            return sorted(own, key=lambda body: body.__name__)[0]
    raise LookupError(f"no model with a capture loop found for {cls.__name__}")


def loop_source(body: type) -> str:
    """The source of the first `forward` on the way up that captures; empty when none does."""
    for owner in body.__mro__:
        forward = vars(owner).get("forward")
        if forward is None or owner.__module__.startswith("torch"):
            continue
        source = inspect.getsource(forward)
        if "to_capture" in source:
            return source
    return ""


def loop_of(body: type) -> dict[str, bool]:
    """How the loop in `forward` decides what to capture, read from its source."""
    source = loop_source(body)
    members = set(re.findall(r"([\w.]+) in self\.layers_to_capture", source))
    behind = {"self.end_layer", "num_layers", "self.config.num_hidden_layers"}
    return {
        "membership": bool(members - behind),
        "behind_last": bool(members & behind),
        "flags": "_is_layer_to_capture" in source,
        "counts": "AuxHiddenStatePacker(" in source,
    }


def stand_in(cls: type, models: dict[str, type], body: type, num_layers: int) -> tuple[Any, Any]:
    """An object on which the hook of `cls` can be called, and the stand-in of its body."""
    inner = types.SimpleNamespace(
        layers=[types.SimpleNamespace() for _ in range(num_layers)],
        layers_to_capture=[],
        capture_aux_hidden_states=False,
    )
    if hasattr(body, HOOK):
        inner.set_eagle3_layers_to_capture = types.MethodType(getattr(body, HOOK), inner)
    config = types.SimpleNamespace(num_hidden_layers=num_layers)
    config.text_config = config
    outer = types.SimpleNamespace(model=inner, language_model=inner, config=config, pp_group=LAST_RANK)
    if cls.__name__ in WRAPS:
        language, inner = stand_in(models[WRAPS[cls.__name__]], models, body, num_layers)
        outer.language_model = language
    hook = getattr(cls, HOOK)
    hook.__globals__["get_parallel"] = lambda: types.SimpleNamespace(pp_group=LAST_RANK)
    outer.set_eagle3_layers_to_capture = types.MethodType(hook, outer)
    return outer, inner


def captured(stands: tuple[Any, Any], loop: dict[str, bool], num_layers: int, ids: list[int] | None) -> Any:
    outer, inner = stands
    try:
        outer.set_eagle3_layers_to_capture(ids)
    except IndexError:
        return "IndexError"
    hits = [
        i
        for i in range(num_layers)
        if (loop["membership"] and i in inner.layers_to_capture)
        or (loop["flags"] and getattr(inner.layers[i], "_is_layer_to_capture", False))
    ]
    if loop["behind_last"] and num_layers in inner.layers_to_capture:
        hits.append(num_layers)
    return hits


def id_lists(num_layers: int) -> Iterator[list[int] | None]:
    """None; every list of one or two ids and, for few layers, of three, bad ones too; every ascending legal list."""
    yield None
    values = range(-2, num_layers + 2)
    for length in (1, 2, 3) if num_layers <= 5 else (1, 2):
        for ids in itertools.product(values, repeat=length):
            yield list(ids)
    for length in range(3, num_layers + 2):
        for ids in itertools.combinations(range(-1, num_layers + 1), length):
            yield list(ids)
            # how a list is written where a leading 1 would shift all of it
            yield [ids[1], ids[0], *ids[2:]]


def read_capture(max_layers: int) -> dict[str, Any]:
    models, broken = import_models()
    maps: list[Any] = []
    classes: dict[str, Any] = {}
    indices: dict[Any, int] = {}
    for name, cls in sorted(models.items()):
        if not hasattr(cls, HOOK):
            continue
        try:
            body = body_of(models[WRAPS[name]] if name in WRAPS else cls)
        except LookupError as error:
            classes[name] = {"problem": str(error)}
            continue
        loop = loop_of(body)
        same_code = (getattr(cls, HOOK), body, WRAPS.get(name))
        if same_code not in indices:
            table = [
                [layers, ids, captured(stand_in(cls, models, body, layers), loop, layers, ids)]
                for layers in range(1, max_layers + 1)
                for ids in id_lists(layers)
            ]
            if table not in maps:
                maps.append(table)
            indices[same_code] = maps.index(table)
        classes[name] = {"map": indices[same_code], "body": f"{body.__module__}.{body.__name__}", **loop}
    hooked = {name for name, cls in models.items() if hasattr(cls, HOOK)}
    unread = {
        module: HOOK in text or bool(hooked & set(re.findall(r"^class \w+\((\w+)", text, re.M)))
        for module, text in broken.items()
    }
    return {"classes": classes, "maps": maps, "unread": unread}


def resolve(argv: list[str]) -> dict[str, Any]:
    """SGLang's own resolution of a command line: the values, or the error."""
    from sglang.srt.arg_groups.overrides import resolved_view
    from sglang.srt.server_args import prepare_server_args

    try:
        args = prepare_server_args(argv)
        args.resolve_once()
        view = resolved_view(args)
    except (Exception, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    more = (
        "max_running_requests",
        "enable_mixed_chunk",
        "disable_overlap_schedule",
        "page_size",
        "speculative_adaptive",
    )
    return {"triple": [getattr(view, name) for name in names], **{name: getattr(view, name) for name in more}}


def main(run: Callable[[], dict[str, Any]]) -> None:
    # models and servers print as they please; only the answer belongs on stdout
    stdout, sys.stdout = sys.stdout, sys.stderr
    answer = run()
    json.dump(answer, stdout)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    main(
        lambda: {
            "version": importlib.import_module("sglang").__version__,
            "resolved": [resolve(argv) for argv in asked["argvs"]],
            **read_capture(asked["layers"]),
        }
    )
