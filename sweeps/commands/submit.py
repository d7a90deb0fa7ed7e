"""`specsweep submit`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from search_spaces.errors import InputError
from sweeps.commands.options import AsJson, Overrides, SpecFile, print_json

SCHEMA = 1
DONE, FAILED, INTERRUPTED = 0, 1, 130


def submit(
    spec_file: SpecFile,
    *,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Ray's job server. Default: RAY_API_SERVER_ADDRESS, RAY_ADDRESS, else http://127.0.0.1:8265.",
            show_default=False,
        ),
    ] = None,
    working_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The folder that the job takes along. Default: the spec's.", show_default=False
        ),
    ] = None,
    overrides: Overrides = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="NAME=VALUE", help="A variable for the job. May be repeated.", show_default=False
        ),
    ] = None,
    submission_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Name of the job. Default: Ray chooses.", show_default=False)
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return when the job is accepted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a sweep on a Ray cluster, as a job, and follow its log.

    The folder of the spec travels (100 MiB at most, without what git ignores); models are best given by an absolute
    path on the cluster, whose nodes need specsweep on PATH. SPECSWEEP_HOME is passed on when it is set here. The exit
    code is the driver's; Ctrl-C leaves the job running.

    Example: specsweep submit sweep.yaml --address http://head:8265
    """
    from sweeps.spec import parse_spec, relative_files
    from sweeps.submit import job_request
    from sweeps.submit import submit as send

    texts = tuple(overrides or ())
    parse_spec(spec_file, texts)
    request = job_request(
        spec_file,
        spec_file.parent if working_dir is None else working_dir,
        overrides=texts,
        relative_files=relative_files(spec_file, texts),
        environment=_environment(env or ()),
    )
    try:
        result = send(
            request, address, submission_id, None if no_wait else lambda text: typer.echo(text, nl=False, err=as_json)
        )
    except KeyboardInterrupt:
        typer.echo("\nthe job goes on; `ray job stop` ends it", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json({"schema": SCHEMA, **{name: getattr(result, name) for name in _SHOWN}})
    elif no_wait:
        typer.echo(
            f"job {result.submission_id} on {result.address}; follow it with `ray job logs -f {result.submission_id}`"
        )
    elif result.state != "succeeded":
        typer.echo(f"specsweep: job {result.submission_id} {result.state}: {result.message}", err=True)
    raise typer.Exit(_exit_code(result.state, result.exit_code))


_SHOWN = ("submission_id", "address", "state", "exit_code", "message")


def _exit_code(state: str, driver: int | None) -> int:
    if state in ("succeeded", "submitted"):
        return DONE
    if state == "stopped":
        return INTERRUPTED
    return driver if driver is not None and 0 < driver < 256 else FAILED


def _environment(texts: list[str] | tuple[()]) -> dict[str, str]:
    home = os.environ.get("SPECSWEEP_HOME")
    variables = {"SPECSWEEP_HOME": home} if home else {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"--env {text}: write NAME=VALUE")
        variables[name] = value
    return variables
