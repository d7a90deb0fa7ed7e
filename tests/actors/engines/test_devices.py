from __future__ import annotations

from pathlib import Path

import pytest

from actors.engines import devices
from actors.engines.devices import describe, has_gpu, list_gpus, memory_used_mib, parse_gpus, wait_for_memory

TWO = """\
0, GPU-8932f937-d72c-4106-c12f-20bd9faed9f6, NVIDIA H200, 512
1, GPU-22d0ed6f-1111-2222-3333-444444444444, NVIDIA H200, [N/A]
"""


def fake_nvidia_smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_gpus_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, f"cat <<'EOF'\n{TWO}EOF\n", monkeypatch)
    gpus = list_gpus()
    assert [(gpu.index, gpu.name, gpu.memory_used_mib) for gpu in gpus] == [
        ("0", "NVIDIA H200", 512),
        ("1", "NVIDIA H200", 0),
    ]
    assert has_gpu(tmp_path)


def test_a_driver_that_fails_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, "echo 'NVIDIA-SMI has failed because it could not communicate'\nexit 9\n", monkeypatch)
    assert list_gpus() == ()


def test_a_device_file_is_a_gpu_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "list_gpus", lambda: ())
    (tmp_path / "nvidiactl").touch()
    assert not has_gpu(tmp_path)
    (tmp_path / "nvidia0").touch()
    assert has_gpu(tmp_path)


def test_descriptions_and_memory_count_the_groups_gpus_only() -> None:
    gpus = parse_gpus(TWO)
    assert describe("cuda", ("0", "1"), gpus) == "2 x NVIDIA H200"
    assert describe("cuda", ("GPU-8932f937",), gpus) == "1 x NVIDIA H200"
    assert describe("cuda", ("7",), gpus) == "1 x unknown GPU"
    assert describe("cpu", (), ()) == "cpu"
    assert memory_used_mib(("0",), gpus) == 512
    assert memory_used_mib(("1",), gpus) == 0


def test_memory_is_given_back_when_the_driver_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead server's memory goes a little after it; GPUs of others do not matter."""
    asked = tmp_path / "asked"
    script = f"""\
echo asked >> {asked}
used=40000; [ $(wc -l < {asked}) -gt 2 ] && used=300
echo "0, GPU-aaaa0000, NVIDIA H200, $used"
echo "1, GPU-bbbb0000, NVIDIA H200, 90000"
"""
    fake_nvidia_smi(tmp_path, script, monkeypatch)
    assert wait_for_memory(("0",), 512) == 300
    assert asked.read_text().count("asked") == 3
    assert wait_for_memory(("1",), 512, timeout_s=0.1) == 90000
