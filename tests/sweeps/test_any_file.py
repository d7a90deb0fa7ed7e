"""Whatever lies in a file, `explain` and `check` answer with JSON or with one line that names the file."""

from __future__ import annotations

import contextlib
import io
import json
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_checkpoints import DRAFT, LLAMA, draft_tensors, header_bytes

from results.external_row_file import FIELDS
from sweeps.cli import main

ANY_FILE = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([10**30, 10**400, -1, 1e308]) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLAUSIBLE = st.sampled_from([0, 1, 2, 3, 8, 61, 10**9, 0.7, 2.4, True, "llama", "0.5.23", [2, 30, 58], [0.7, 0.5], {}])
ROW = st.dictionaries(st.sampled_from([*FIELDS, "typo"]), PLAUSIBLE | JUNK, max_size=8)
DUMP = st.dictionaries(
    st.sampled_from(
        [
            "internal_states",
            "server_args",
            "launch_command",
            "tp-size",
            "speculative_num_steps",
            "avg_spec_accept_length",
        ]
    ),
    PLAUSIBLE | JUNK | st.lists(st.fixed_dictionaries({"avg_spec_accept_length": JUNK}), max_size=2),
    max_size=5,
)
LINES = (
    "[2026-11-29 12:00:40 TP0] Decode batch, #running-req: 8, #token: 9216, token usage: 0.04, accept len: 2.41,"
    " accept rate: 0.47, cuda graph: True, gen throughput (token/s): 1044.10, #queue-req: 0",
    "server_args=ServerArgs(model_path='m', tp_size=8, json_model_override_args='{\"eagle_config\": 3}')",
    "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1",
    "Prefill batch, #new-token: 5, #cached-token: 9",
    "SGLANG_SIMULATE_ACC_LEN=3.24",
    "torch.OutOfMemoryError: CUDA out of memory",
)


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    """What a file makes grow without end fails with its example, and takes nothing else down."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """A few cuts, bytes changed or put in."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(0, 4))):
        at, end = sorted(draw(st.tuples(st.integers(0, len(data)), st.integers(0, len(data)))))
        data[at : min(end, at + 40)] = draw(st.binary(max_size=4))
    return bytes(data)


def ask(*argv: str | Path) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in argv])
    return code, out.getvalue(), err.getvalue()


def refuse(name: str) -> float:
    raise AssertionError(f"{name} in what should be JSON")


def judge(answer: tuple[int, str, str], folder: Path) -> None:
    code, out, err = answer
    assert code in (0, 1, 2)
    if code == 2:
        assert err.count("\n") == 1
        assert str(folder) in err
    else:
        assert json.loads(out, parse_constant=refuse)["schema"] == 1
        assert not err


def lines_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return st.lists(values, max_size=4).map(lambda rows: "\n".join(map(json.dumps, rows)).encode())


@given(
    st.one_of(
        lines_of(ROW),
        lines_of(ROW).flatmap(damaged),
        lines_of(DUMP),
        st.lists(st.sampled_from(LINES), min_size=1).map(lambda lines: "\n".join(lines).encode()).flatmap(damaged),
        st.binary(max_size=200),
    )
)
@ANY_FILE
def test_explain_answers_whatever_a_file_holds(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        file.write_bytes(content)
        judge(ask("explain", "--json", file), Path(folder))


CONFIG_KEYS = sorted({*LLAMA, *DRAFT, "eagle_config", "rope_scaling", "text_config", "quantization_config", "fc_norm"})
CHANGES = st.dictionaries(st.sampled_from(CONFIG_KEYS), JUNK | PLAUSIBLE, max_size=3)


@given(CHANGES, CHANGES, st.booleans(), damaged(header_bytes(draft_tensors())))
@ANY_FILE
def test_check_answers_whatever_a_folder_holds(
    of_target: dict[str, Any], of_draft: dict[str, Any], intact: bool, header: bytes
) -> None:
    with tempfile.TemporaryDirectory() as name:
        target, draft = Path(name) / "target", Path(name) / "draft"
        for folder, config in ((target, {**LLAMA, **of_target}), (draft, {**DRAFT, **of_draft})):
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(config))
        (draft / "model.safetensors").write_bytes(header_bytes(draft_tensors()) if intact else header)
        judge(ask("check", "--target", target, "--draft", draft, "--json"), Path(name))
