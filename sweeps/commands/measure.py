"""`specsweep measure`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweeps.commands.options import AsJson, print_json

if TYPE_CHECKING:
    from sweeps.measuring import MeasuredServer


def measure(  # noqa: PLR0917  (options of the command line)
    url: Annotated[str, typer.Argument(metavar="URL", help="The server's root, e.g. http://127.0.0.1:30000.")],
    prompts: Annotated[
        str, typer.Option(help="A count of built-in prompts, a built-in set, a file, a folder or hf:DATASET.")
    ] = "64",
    count: Annotated[
        int | None, typer.Option(min=1, help="How many prompts of a set, file or folder.", show_default=False)
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 8,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens generated per request.")] = 256,
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
    """Measure a server that is already running: one honest row.

    Sends a few warm-up requests, empties the server's prefix cache, then sends the prompts. Nothing is started, stopped
    or reconfigured; needs neither Ray nor MLflow nor a spec. Exit code 3 when no SGLang server answers at URL.

    Example: specsweep measure http://127.0.0.1:30000 --concurrency 1
    """
    from actors.engines.endpoint import Endpoint
    from results.failures import Failure
    from sweeps.measuring import MeasureRequest, measure_server

    asked = MeasureRequest(
        endpoint=Endpoint(url=url, api_key_env=api_key_env),
        prompts=int(prompts) if prompts.isdecimal() else prompts,
        count=count,
        concurrency=concurrency,
        max_new_tokens=max_new_tokens,
        ignore_eos=ignore_eos,
        half_width=None if all_prompts else 0.02,
    )
    measured = measure_server(asked)
    if isinstance(measured, Failure):
        typer.echo(f"specsweep: {asked.endpoint.base_url}: {measured.phase}: {measured.message}", err=True)
        raise typer.Exit(1)
    if as_json:
        print_json(measured_json(measured))
    else:
        typer.echo(show_measured(measured))


def measured_json(measured: MeasuredServer) -> dict[str, Any]:
    """The object that is documented in docs/json.md."""
    from results.cell_row import cell_json

    return {
        "schema": 1,
        "url": measured.url,
        "server": measured.server,
        "workload": measured.workload,
        "notes": list(measured.notes),
        **cell_json(measured.cell, measured.triple),
    }


def show_measured(measured: MeasuredServer) -> str:
    """What the server is, then its row."""
    from results.cell_row import cell_text

    server, triple = measured.server, measured.triple
    what = "no speculation" if triple is None else f"{server['speculative_algorithm']} {triple}"
    head = f"{server['model_path']}, {what}, tp {server['tp_size']}, SGLang {server['sglang_version']}"
    lines = [head, "", cell_text(measured.cell, triple), *(f"note: {note}" for note in measured.notes)]
    return "\n".join(lines)
