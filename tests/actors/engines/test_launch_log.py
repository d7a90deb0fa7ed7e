from __future__ import annotations

import pytest

from actors.engines.guarded_process import ExitStatus
from actors.engines.launch_log import classify, tail

KILLED = ExitStatus(exit_code=None, signal=9)
FAILED = ExitStatus(exit_code=1, signal=None)

# Told by real servers of SGLang 0.5.23; paths shortened.
BEFORE = """\
[2026-11-29 17:40:54] server_args={'watchdog': 'out of memory', 'error': 'No module named sglang'}
[2026-11-29 17:40:55] Ignore import error when loading sglang.srt.models.inkling: No module named 'cutlass'
Traceback (most recent call last):
  File "http_server.py", line 2561, in _freeze_gc_after_server_warmup
requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=26800): Max retries exceeded
[2026-11-29 17:58:51] INFO:     127.0.0.1:40464 - "GET /health HTTP/1.1" 200 OK
"""
AFTER = """
[2026-11-29 17:58:51] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
[2026-11-29 17:58:56] kill_process_tree called: parent_pid=17816, include_parent=True, pid=17816
"""


def death(last: str, stamp: str = "[2026-11-29 17:58:51]") -> str:
    told = f'{stamp} Scheduler hit an exception: Traceback (most recent call last):\n  File "scheduler.py", line 1\n'
    return BEFORE + told + last + "\n" + AFTER


@pytest.mark.parametrize(
    ("log", "kind", "message"),
    [
        (death("RuntimeError: selected index k out of range"), "bad_config", "selected index k out of range"),
        (
            death("RuntimeError: mat1 and mat2 shapes cannot be multiplied (5x128 and 192x64)"),
            "bad_config",
            "mat1 and mat2 shapes cannot be multiplied",
        ),
        (
            death(
                "RuntimeError: The expanded size of the tensor (2) must match the existing size (4) at non-singleton "
                "dimension 1.  Target sizes: [1, 2].  Tensor sizes: [4]"
            ),
            "bad_config",
            "The expanded size of the tensor (2) must match",
        ),
        (
            death("AssertionError: Attempted to load weight (torch.Size([64, 192])) into parameter (torch.Size([64]))"),
            "bad_config",
            "AssertionError: Attempted to load weight",
        ),
        (
            death("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB"),
            "oom",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        ),
        (
            BEFORE
            + "[2026-11-29 12:00:40 TP0] Capture cuda graph begin. This can take up to several minutes.\n"
            + "[2026-11-29 12:00:50 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
            + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB.\n"
            + "During handling of the above exception, another exception occurred:\n"
            + "Exception: Capture cuda graph failed: CUDA out of memory. Possible solutions:\n"
            + "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n",
            "oom",
            "torch.OutOfMemoryError: CUDA out of memory",
        ),
        (death("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."), "oom", "Not enough"),
        (death("RuntimeError: CUDA error: an illegal memory access was encountered"), "crash", "illegal memory access"),
        (death("RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:3384, unhandled cuda error"), "crash", "NCCL error"),
        (
            'usage: sglang serve [-h]\nsglang serve: error: unrecognized arguments: --nonsense 1',
            "bad_config",
            "sglang serve: error: unrecognized arguments: --nonsense 1",
        ),
        (
            "Traceback (most recent call last):\nValueError: trtllm_mha backend only supports topk = 1.",
            "bad_config",
            "ValueError: trtllm_mha backend only supports topk = 1",
        ),
        (
            "/usr/bin/python3: Error while finding module specification for 'sglang.launch_server' "
            "(ModuleNotFoundError: No module named 'sglang')",
            "no_engine",
            "No module named 'sglang'",
        ),
        ("ModuleNotFoundError: No module named 'sglang'", "no_engine", "No module named 'sglang'"),
        ("ModuleNotFoundError: No module named 'triton'", "no_engine", "No module named 'triton'"),
        ("cannot start /nowhere/python: No such file or directory", "no_engine", "cannot start /nowhere/python"),
        (
            "[2026-11-29 17:42:06] ERROR:    [Errno 98] error while attempting to bind on address "
            "('127.0.0.1', 31901): [errno 98] address already in use",
            "port_in_use",
            "address already in use",
        ),
        (
            death("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
                  "address. port: 24191, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"),
            "port_in_use",
            "DistNetworkError",
        ),
        (death("OSError: [Errno 28] No space left on device: 'file'"), "machine", "[Errno 28] No space left on device"),
        (death("OSError: [Errno 24] Too many open files"), "machine", "[Errno 24] Too many open files"),
        (death("OSError: [Errno 5] Input/output error"), "machine", "[Errno 5]"),
        (death("OSError: [Errno 116] Stale file handle"), "machine", "[Errno 116]"),
        (
            death("safetensors_rust.SafetensorError: Error while serializing: I/O error: No space left on device"),
            "machine",
            "No space left on device",
        ),
        (death("OSError: Can't load the configuration of 'draft'"), "bad_config", "Can't load the configuration"),
        (death("FileNotFoundError: [Errno 2] No such file or directory: 'x'"), "bad_config", "[Errno 2]"),
        ("Killed", "crash", "Killed"),
        ("", "crash", "the server ended (ended by signal 9 (SIGKILL))"),
    ],
)  # fmt: skip
def test_the_kind_and_the_most_telling_line(log: str, kind: str, message: str) -> None:
    failure = classify(log, KILLED, "ready")
    assert failure.kind == kind
    assert message in failure.message
    assert failure.phase == "ready"


def test_consequences_in_other_processes_do_not_hide_the_cause() -> None:
    log = "EOFError\nBrokenPipeError: [Errno 32] Broken pipe\n" + "ValueError: bad page size\n" + "SystemExit: 1\n"
    assert classify(log, FAILED, "ready").message == "ValueError: bad page size"


def test_a_server_that_still_runs_is_a_timeout_and_says_how_far_it_came() -> None:
    failure = classify("[2026-11-29 12:00:00 TP0] Load weight begin. avail mem=70 GB\n", None, "ready", seconds=900.4)
    assert failure.kind == "timeout"
    assert failure.is_infrastructure
    assert failure.message == (
        "the server was not ready after 900 s; last line of its log: Load weight begin. avail mem=70 GB"
    )


def test_a_server_that_hangs_after_an_error_is_not_a_timeout() -> None:
    assert (
        classify(death("RuntimeError: selected index k out of range"), None, "ready", seconds=30).kind == "bad_config"
    )


def test_a_clean_end_is_a_crash_all_the_same() -> None:
    assert classify("", ExitStatus(exit_code=0, signal=None), "measure").message == "the server ended (exit code 0)"


def test_messages_are_one_bounded_line() -> None:
    failure = classify("ValueError: a\tb " + "x" * 5000, FAILED, "ready")
    assert failure.message.startswith("ValueError: a b x")
    assert len(failure.message) == 400


def test_the_tail_begins_at_a_line() -> None:
    assert tail("one\ntwo\nthree\n", 8) == "three\n"
    assert tail("short", 100) == "short"
