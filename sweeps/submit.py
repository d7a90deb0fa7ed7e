"""Running a sweep as a Ray job. The one place that talks to Ray's job server; `ray` is imported when it does."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from search_spaces.errors import EnvironmentProblem, InputError
from sweeps.upload import pack

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
STOP_WAIT_S = 60
"""How long a stopped driver may take to stop servers and close records; Ray's own default is 3 s."""

POLL_S = 3.0
"""Between looks at a job whose log has broken off."""
MAX_MISSED = 20
"""After so many looks in a row without an answer a job is not followed any more: a head node may take a minute."""

LOG = logging.getLogger(__name__)

JobState = Literal["submitted", "succeeded", "failed", "stopped"]


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One job: the folder it takes along, the command in it, the variables it sees. `needed` must be in the folder, by
    what names it and relative to it."""

    folder: Path
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    needed: Mapping[str, Path] = field(default_factory=dict)

    @property
    def entrypoint(self) -> str:
        """The command as the shell on the head node takes it; every argument stays one argument."""
        return shlex.join(self.argv)


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """How a job stands. `exit_code` is the driver's own, None while it runs."""

    submission_id: str
    address: str
    state: JobState
    exit_code: int | None
    message: str


def job_request(
    spec_file: Path,
    folder: Path,
    *,
    overrides: Sequence[str] = (),
    relative_files: Mapping[str, Path],
    environment: Mapping[str, str],
) -> JobRequest:
    """The job that runs `spec_file`, with `folder` taken along. `environment` is added to the job's own.

    InputError when the spec, or what it names by a relative path, is not inside `folder`.
    """
    file, base = spec_file.resolve(), folder.resolve()
    if not file.is_relative_to(base):
        raise InputError(f"{spec_file}: not inside the job's working directory {folder}; give another --working-dir")
    needed = {str(spec_file): file.relative_to(base)}
    for key, path in relative_files.items():
        if not path.resolve().is_relative_to(base):
            raise InputError(
                f"{spec_file}: {key}: {path} is outside the job's working directory {folder}; "
                "give an absolute path that exists on the cluster, or another --working-dir"
            )
        # as it is named, since links do not travel
        named = Path(os.path.relpath(path, folder))
        needed[f"{spec_file}: {key}"] = path.resolve().relative_to(base) if ".." in named.parts else named
    argv = ["specsweep", "run", str(file.relative_to(base))]
    for override in overrides:
        argv += ["--set", override]
    stop_wait = {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)}
    return JobRequest(folder=base, argv=tuple(argv), environment=stop_wait | dict(environment), needed=needed)


def submit(
    request: JobRequest, address: str | None, submission_id: str | None, show: Callable[[str], None] | None
) -> JobResult:
    """Sends the job; with `show`, follows its log until it ends.

    InputError when the folder is too large or lacks what the job needs; EnvironmentProblem when no job server answers,
    also for a minute while the job runs, or it wants authentication. A log that breaks off is taken up again.
    Ctrl-C while following leaves the job running and raises KeyboardInterrupt.
    """
    where = _job_server(address)
    with tempfile.TemporaryDirectory(prefix="specsweep-") as scratch:
        archive = Path(scratch) / "job.zip"
        pack(request.folder, archive, request.needed)
        client = _connect(where)
        environment = {"working_dir": str(archive), "env_vars": dict(request.environment)}
        try:
            job = client.submit_job(
                entrypoint=request.entrypoint, runtime_env=environment, submission_id=submission_id or None
            )
        except Exception as error:  # Ray's client raises its own errors and bare ones alike
            raise _problem(where, error) from error
    if show is None:
        return JobResult(submission_id=job, address=where, state="submitted", exit_code=None, message="")
    show(f"job {job} on {where}\n")
    return _follow(client, job, where, show)


def _job_server(address: str | None) -> str:
    """The URL asked for, else the one of the environment, else Ray's default."""
    where = address or os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS") or DEFAULT_ADDRESS
    if not where.startswith(("http://", "https://")):
        names = "--address, RAY_API_SERVER_ADDRESS or RAY_ADDRESS"
        raise InputError(f"{names}: {where!r} is not the URL of a job server such as {DEFAULT_ADDRESS}")
    return where


def _connect(where: str) -> Any:
    # Ray prefers this variable, and RAY_ADDRESS, to the argument
    os.environ["RAY_API_SERVER_ADDRESS"] = where
    try:
        from ray.job_submission import JobSubmissionClient

        for name in ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk"):
            # both set themselves to INFO when they are imported
            logging.getLogger(name).setLevel(logging.WARNING)
        return JobSubmissionClient(where)
    except Exception as error:  # as above
        raise _problem(where, error) from error


def _follow(client: Any, job: str, where: str, show: Callable[[str], None]) -> JobResult:
    """The result of a job that has ended. The end of its log does not say so: a connection closes for any reason."""
    shown = missed = 0
    while True:
        shown = asyncio.run(_tail(client, job, show, shown))
        try:
            result = _result(client, job, where)
        except Exception as error:  # Ray's client raises its own errors and bare ones alike
            missed += 1
            if missed >= MAX_MISSED:
                problem = _problem(where, error)
                raise EnvironmentProblem(f"{problem}; job {job} is not followed any more and may go on") from error
        else:
            if result.state != "submitted":
                return result
            missed = 0
        time.sleep(POLL_S)


async def _tail(client: Any, job: str, show: Callable[[str], None], shown: int) -> int:
    """Show the log beyond its first `shown` characters until the connection ends; how many have been shown then."""
    seen = 0
    log = client.tail_job_logs(job)
    while True:
        try:
            text = await anext(log)
        except StopAsyncIteration:
            return shown
        except Exception as error:  # as above; whether the job goes on is asked next
            LOG.debug("the log of job %s broke off: %s", job, error)
            return shown
        seen += len(text)
        if seen > shown:
            show(text[shown - seen :])
            shown = seen


def _result(client: Any, job: str, where: str) -> JobResult:
    info = client.get_job_info(job)
    states: dict[str, JobState] = {"SUCCEEDED": "succeeded", "FAILED": "failed", "STOPPED": "stopped"}
    message = " ".join(str(info.message or "").split())
    return JobResult(
        submission_id=job,
        address=where,
        state=states.get(str(info.status.value), "submitted"),
        exit_code=info.driver_exit_code,
        message=message[:300],
    )


def _problem(where: str, error: Exception) -> EnvironmentProblem:
    text = " ".join(str(error).split())[:300]
    hint = ""
    if "auth" in text.lower() or type(error).__name__ == "AuthenticationError":
        hint = "; set RAY_AUTH_MODE (token or disabled) to the same on the cluster and here"
    return EnvironmentProblem(f"Ray's job server {where}: {text or type(error).__name__}{hint}")
