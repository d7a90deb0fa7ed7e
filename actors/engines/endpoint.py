"""The engine that owns nothing: a server that somebody else runs. It is asked and measured, never changed."""

from __future__ import annotations

import http.client
import json
import shlex
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from actors.engines.effective import read_triple, resolved_args, verify
from actors.engines.endpoint_url import url_problem
from actors.load.client import authorization
from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig, Triple
from search_spaces.errors import EnvironmentProblem, InputError

INFO_TIMEOUT_S = 15.0
_INFO_PATHS = ("/server_info", "/get_server_info")  # the second is the older name


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the API key to wherever it points, and requests for text do not follow one."""

    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a running SGLang server answers, and the environment variable that holds its API key, if it has one.

    InputError when `url` is not an http or https URL of a server's root. The key itself is kept nowhere.
    """

    url: str
    api_key_env: str | None = None

    def __post_init__(self) -> None:
        problem = url_problem(self.url)
        if problem is not None:
            raise InputError(problem)

    @property
    def base_url(self) -> str:
        """Without a trailing slash."""
        return self.url.rstrip("/")

    @property
    def port(self) -> int:
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    def server_info(self) -> dict[str, Any]:
        """What the server says about itself, live state included.

        EnvironmentProblem, in one line, when nothing answers, the key is missing or refused, or it is no SGLang server.
        """
        headers = authorization(self.api_key_env)
        for path in _INFO_PATHS:
            request = urllib.request.Request(self.base_url + path, headers=headers)  # noqa: S310
            try:
                with _OPENER.open(request, timeout=INFO_TIMEOUT_S) as answer:
                    text = answer.read()
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    continue
                raise EnvironmentProblem(self._refusal(error.code, error.headers.get("Location"))) from error
            except (OSError, ValueError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                raise EnvironmentProblem(f"nothing usable answers at {self.base_url}: {_one_line(reason)}") from error
            return self._checked(text, path)
        raise EnvironmentProblem(f"{self._answers}: it has no /server_info")

    def _checked(self, text: bytes, path: str) -> dict[str, Any]:
        """What the server says, if it is one of SGLang's: others may answer at that path as well."""
        try:
            content = json.loads(text)
        except ValueError as error:
            raise EnvironmentProblem(f"{self._answers}: its {path} is not JSON") from error
        if not isinstance(content, dict) or not isinstance(content.get("model_path"), str):
            raise EnvironmentProblem(f"{self._answers}: its {path} names no model_path")
        return content

    @property
    def _answers(self) -> str:
        return f"{self.base_url} answers, but is not an SGLang server"

    def _refusal(self, status: int, location: str | None) -> str:
        if 300 <= status < 400:
            to = _one_line(location or "nowhere")
            return f"{self.base_url} redirects to {to}; name the server that answers itself"
        if status in (401, 403):
            wrong = f"the key in {self.api_key_env} is refused" if self.api_key_env else "it wants an API key"
            return f"{self.base_url}: HTTP {status}: {wrong}"
        return f"{self.base_url}/server_info: HTTP {status}"


class RunningServer:
    """An `Engine` over an endpoint: starts and stops nothing, so a configuration it does not have is a Failure."""

    def __init__(self, endpoint: Endpoint, *, model_path: str | None = None) -> None:
        """`model_path` is the target that the study is about; another one on the server is a finding."""
        self._endpoint = endpoint
        self._model_path = model_path
        self._applied = False
        self._closed = False

    def apply(self, config: EngineConfig) -> LaunchObservation | Failure:
        """Ask the server what it runs; blocks for seconds at most. A Failure when that is not `config`."""
        self._applied = False
        try:
            info = self._endpoint.server_info()
        except EnvironmentProblem as problem:
            return Failure(phase="ready", kind="timeout", message=str(problem))
        verification = verify(info, config, {"tp_size": config.tp_size})
        if verification.mismatch is not None:
            return Failure(phase="verify", kind="mismatch", message=verification.mismatch)
        self._applied = True
        args = resolved_args(info)
        return LaunchObservation(
            command=_command(args),
            engine_version=str(info.get("version", "unknown")),
            accelerator=f"{info.get('device') or 'an unknown device'} of {self._endpoint.base_url}",
            stand_in_kernels=False,
            ready_s=0.0,
            pid=0,
            port=self._endpoint.port,
            device_ids=(),
            effective_args=args,
            findings=(*verification.findings, *self._findings(info)),
            weights_loaded=False,
        )

    @property
    def base_url(self) -> str:
        if not self._applied:
            raise RuntimeError("the endpoint was not seen to run the configuration")
        return self._endpoint.base_url

    def failure_now(self) -> Failure | None:
        """Only that the engine was closed: whether the server lives shows in its answers alone."""
        if self._closed:
            return Failure(phase="measure", kind="interrupted", message="the engine is closed")
        return None

    def log_tail(self, max_bytes: int = 65536) -> str:
        """Empty: the log is on the server's own machine."""
        return ""

    def close(self) -> None:
        """Nothing was started; a load that is under way ends."""
        self._closed = True

    def _findings(self, info: Mapping[str, Any]) -> tuple[str, ...]:
        found = []
        serves = info.get("model_path")
        if self._model_path is not None and isinstance(serves, str) and _name(serves) != _name(self._model_path):
            found.append(f"the server serves {serves}, the study names {self._model_path}")
        override = info.get("decrypted_draft_config_file") or info.get("json_model_override_args")
        if override and override != "{}":
            found.append(f"the draft's config is overridden on the server ({override}): its layout may be another")
        return tuple(found)


def runs(info: Mapping[str, Any]) -> tuple[Triple | None, int]:
    """What a server runs, as far as it tells: its triple (None: no speculation) and TP size. It tells no layout.

    EnvironmentProblem when it speculates without naming the three numbers of SGLang's EAGLE family.
    """
    try:
        triple = read_triple(info)
    except ValueError as problem:
        raise EnvironmentProblem(_one_line(problem)) from problem
    size = info.get("tp_size")
    return triple, size if isinstance(size, int) and size > 0 else 1


def _command(args: Mapping[str, Any]) -> tuple[str, ...]:
    """The words the server was started with, where it tells them."""
    text = args.get("launch_command")
    try:
        return tuple(shlex.split(text)) if isinstance(text, str) else ()
    except ValueError:
        return ()


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _one_line(problem: object) -> str:
    return " ".join(str(problem).split())[:200] or type(problem).__name__
