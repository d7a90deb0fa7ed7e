"""How a GPU group gets its engine: a recipe that travels to the actor and is made concrete by what the actor holds."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from actors.engines.endpoint import Endpoint, RunningServer
from actors.engines.engine import Engine
from actors.engines.launch_log import tail
from actors.engines.readiness import read_log
from actors.engines.server_spec import ServerSpec
from actors.engines.sglang_server import SglangServer
from actors.engines.switch_history import SwitchHistory
from actors.engines.switching_server import SwitchingServer
from actors.gpu_group import DeviceGrant
from search_spaces.config import Triple
from search_spaces.errors import EnvironmentProblem

SMALLEST = Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2)


@dataclass(frozen=True, kw_only=True)
class SglangFactory:
    """Makes SGLang servers from one specification; `slot`, `device_ids` and `work_dir` are filled in from the group.

    With `pools`, servers make room for that triple and are switched between layouts and triples, with CUDA graphs for
    `graph_batch_sizes`; `triples` are those of the sweep. `room` is the largest triple of all servers of the sweep,
    switched or not: a server that is traced has room for it. `history` is what the group's engines learn about
    switching; each actor has its own copy.
    """

    server: ServerSpec
    pools: Triple | None = None
    room: Triple | None = None
    triples: tuple[Triple, ...] = ()
    graph_batch_sizes: tuple[int, ...] | None = None
    history: SwitchHistory = field(default_factory=SwitchHistory, compare=False, repr=False)

    def __call__(self, grant: DeviceGrant, *, fresh: bool = False) -> Engine:
        """EnvironmentProblem when its files would not be safe from other users of the machine."""
        _own(_top())
        spec = replace(
            self.server,
            slot=grant.slot,
            device_ids=grant.device_ids,
            work_dir=self._work_dir(grant.slot),
        )
        if self.pools is None or fresh:
            return SglangServer(spec)
        return SwitchingServer(
            spec,
            pools=self.pools,
            triples=self.triples,
            graph_batch_sizes=self.graph_batch_sizes,
            history=self.history,
        )

    @property
    def switches(self) -> bool:
        """Whether ordinary trials are switched, so that an engine that recorded may go on to serve them."""
        return self.pools is not None

    def prober(self, grant: DeviceGrant) -> SwitchingServer:
        """An engine that can be probed, whatever this study thinks of switching."""
        return self._switching(grant, self.pools or SMALLEST)

    def tracer(self, grant: DeviceGrant) -> SwitchingServer:
        """An engine that can be traced in every layout and topk of the sweep after one launch."""
        return self._switching(grant, self.pools or self.room or SMALLEST)

    def trace_folder(self, grant: DeviceGrant) -> Path:
        return self._work_dir(grant.slot) / "trace"

    def _switching(self, grant: DeviceGrant, pools: Triple) -> SwitchingServer:
        engine = replace(self, pools=pools)(grant)
        assert isinstance(engine, SwitchingServer)
        return engine

    def clear(self, grant: DeviceGrant) -> None:
        """Remove the working files of a group that has stopped; logs are in the records."""
        shutil.rmtree(self._work_dir(grant.slot), ignore_errors=True)
        folder = self._work_dir(grant.slot).parent
        if folder.is_dir() and not any(folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)

    def last_log(self, grant: DeviceGrant) -> str:
        """Of the server that ran last, or was starting."""
        logs = sorted(self._work_dir(grant.slot).glob("*.log"), key=lambda path: path.stat().st_mtime)
        return tail(read_log(logs[-1])) if logs else ""

    def _work_dir(self, slot: str) -> Path:
        """On the node's own disk: the study's folder need not exist there."""
        return _top() / self.server.sweep_id / slot


def _top() -> Path:
    return Path(tempfile.gettempdir()) / f"specsweep-{os.getuid()}"


def _own(folder: Path) -> None:
    """Make this folder for this user alone, or see that it is: servers import code that lies in it."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o022:
        raise EnvironmentProblem(
            f"{folder}: not a folder that this user alone can write to, and servers would run code from it; "
            "remove it, or set TMPDIR to a folder of your own where the actors run"
        )


@dataclass(frozen=True, kw_only=True)
class EndpointFactory:
    """Makes engines over one server that runs already, whatever the group holds; `fresh` means nothing to them."""

    endpoint: Endpoint
    model_path: str | None = None

    def __call__(self, grant: DeviceGrant, *, fresh: bool = False) -> Engine:
        return RunningServer(self.endpoint, model_path=self.model_path)

    def clear(self, grant: DeviceGrant) -> None:
        """Nothing was written."""

    def last_log(self, grant: DeviceGrant) -> str:
        """The log is somebody else's."""
        return ""
