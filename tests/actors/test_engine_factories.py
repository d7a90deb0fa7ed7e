"""Where servers' files lie: in a folder that no other user of the machine can write to."""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from server_specs import fake_spec
from tiny_models import TinyPair

from actors import gpu_group
from actors.engine_factories import SglangFactory
from actors.gpu_group import DeviceGrant, GpuGroup
from search_spaces.config import Triple
from search_spaces.errors import EnvironmentProblem

GRANT = DeviceGrant(slot="0", node_id="node", pid=1, tp_size=1, device="cpu", device_ids=())


@pytest.fixture
def factory(tiny_pair: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SglangFactory:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return SglangFactory(server=fake_spec(tiny_pair, tmp_path / "spec"))


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return tmp_path / "tmp" / f"specsweep-{os.getuid()}"


def test_the_folder_is_this_users_alone_and_used_again(factory: SglangFactory, top: Path) -> None:
    before = os.umask(0)
    try:
        factory(GRANT).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(top.stat().st_mode) == 0o700
    factory.clear(GRANT)
    assert list(top.iterdir()) == []
    factory(GRANT).close()


def test_the_engines_of_a_group_share_what_they_learn_about_switching(factory: SglangFactory) -> None:
    switching = pickle.loads(
        pickle.dumps(replace(factory, pools=Triple(num_steps=5, eagle_topk=4, num_draft_tokens=16)))
    )
    first, traced = switching(GRANT), switching.tracer(GRANT)
    first._history.heard = True
    assert first._history is traced._history
    assert switching(GRANT)._control.heard
    for engine in (first, traced):
        engine.close()
    # another group's actor has its own
    assert not factory.history.heard


def a_link(top: Path) -> None:
    (top.parent / "elsewhere").mkdir(mode=0o700)
    top.symlink_to(top.parent / "elsewhere")


def a_link_to_nothing(top: Path) -> None:
    top.symlink_to(top.parent / "nowhere")


def a_file(top: Path) -> None:
    top.touch(mode=0o600)


def open_to_others(top: Path) -> None:
    top.mkdir()
    top.chmod(0o777)


def of_another_user(top: Path) -> None:
    top.mkdir(mode=0o700)
    os.chown(top, 12345, -1)


@pytest.mark.parametrize("laid", [a_link, a_link_to_nothing, a_file, open_to_others, of_another_user])
def test_a_folder_that_others_can_write_to_is_refused(
    factory: SglangFactory, top: Path, monkeypatch: pytest.MonkeyPatch, laid: Callable[[Path], None]
) -> None:
    if laid is of_another_user and os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    laid(top)
    with pytest.raises(EnvironmentProblem, match="not a folder that this user alone can write to"):
        factory(GRANT)
    assert not top.is_dir() or list(top.iterdir()) == []
    monkeypatch.setattr(gpu_group, "_assigned", lambda: ((), {"CPU": 1.0}, "node"))
    failure = GpuGroup(factory, "0", 1, "cpu")._ready_engine(factory)
    assert getattr(failure, "kind", None) == "environment"
