"""`specsweep measure`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from search_spaces.errors import InputError
from sweeps.commands.options import AsJson, print_json

if TYPE_CHECKING:
    from sweeps.measuring import MeasuredServer

N = TypeVar("N", int, float)


def measure(  # noqa: PLR0917  (options of the command line)
    url: Annotated[str, typer.Argument(metavar="URL", help="The server's root, e.g. http://127.0.0.1:30000.")],
    prompts: Annotated[
        str, typer.Option(help="A count of built-in prompts, a built-in set, a file, a folder or hf:DATASET.")
    ] = "64",
    count: Annotated[
        int | None, typer.Option(min=1, help="How many prompts of a set, file or folder.", show_default=False)
    ] = None,
    concurrency: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N,...",
            help="Requests in flight; a row for each number. May be repeated. By default 8, or none with a rate.",
            show_default=False,
        ),
    ] = None,
    request_rate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RATE,...",
            help="Requests per second with Poisson arrivals (open loop); a row for each. May be repeated.",
            show_default=False,
        ),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens generated per request.")] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature; 0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Chooses and orders prompts, and draws the arrivals.")] = 0,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Generate all of them.")] = False,
    all_prompts: Annotated[
        bool, typer.Option("--all-prompts", help="Send every prompt, also once the intervals are within 2 %.")
    ] = False,
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The environment variable that holds the API key.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a server that is already running, a row for each load.

    A row has acceptance, throughput and latency, with 95 % intervals, and says why it may not be compared.
    Sends a few warm-up requests; for each load empties the server's prefix cache, then sends the prompts. Nothing is
    started, stopped or reconfigured; needs neither Ray nor MLflow nor a spec. Exit code 3 when no SGLang server answers
    at URL.

    Example: specsweep measure http://127.0.0.1:30000 --request-rate 2,4.5
    """
    from actors.engines.endpoint import Endpoint
    from results.failures import Failure
    from sweeps.measuring import MeasuredServer, MeasureRequest, measure_server

    rates = _numbers("--request-rate", request_rate, float, "requests per second such as 2,4.5")
    in_flight = _numbers("--concurrency", concurrency, int, "requests in flight such as 1,8")
    try:
        asked = MeasureRequest(
            endpoint=Endpoint(url=url, api_key_env=api_key_env),
            prompts=int(prompts) if prompts.isdecimal() else prompts,
            count=count,
            concurrency=in_flight or (() if rates else MeasureRequest.concurrency),
            request_rate=rates,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            ignore_eos=ignore_eos,
            seed=seed,
            half_width=None if all_prompts else 0.02,
        )
    except ValueError as problem:
        raise InputError(str(problem)) from problem
    measured = measure_server(asked)
    failure = measured if isinstance(measured, Failure) else measured.failure
    if isinstance(measured, MeasuredServer):
        if as_json:
            print_json(measured_json(measured))
        else:
            typer.echo(show_measured(measured))
    if failure is not None:
        typer.echo(f"specsweep: {asked.endpoint.base_url}: {failure.phase}: {failure.message}", err=True)
        raise typer.Exit(1)


def _numbers(option: str, texts: list[str] | None, kind: Callable[[str], N], what: str) -> tuple[N, ...]:
    """The numbers of an option that may be repeated and may hold several at once."""
    try:
        return tuple(kind(part) for text in texts or () for part in text.split(","))
    except ValueError:
        raise InputError(f"{option}: {','.join(texts or ())!r} is not a list of {what}") from None


def measured_json(measured: MeasuredServer) -> dict[str, Any]:
    """The object that is documented in docs/json.md."""
    from results.cell_row import cell_json

    rows = [cell_json(cell, measured.triple) for cell in measured.cells]
    failure = measured.failure
    return {
        "schema": 1,
        "url": measured.url,
        "server": measured.server,
        "workload": measured.workload,
        "notes": list(measured.notes),
        **rows[0],
        "rows": rows,
        "failure": failure and {"phase": failure.phase, "kind": failure.kind, "message": failure.message},
    }


def show_measured(measured: MeasuredServer) -> str:
    """What the server is, then a row for each load."""
    from results.cell_row import cell_text

    server, triple = measured.server, measured.triple
    what = "no speculation" if triple is None else f"{server['speculative_algorithm']} {triple}"
    head = f"{server['model_path']}, {what}, tp {server['tp_size']}, SGLang {server['sglang_version']}"
    rows = "\n\n".join(cell_text(cell, triple) for cell in measured.cells)
    return "\n".join([head, "", rows, *(f"note: {note}" for note in measured.notes)])
