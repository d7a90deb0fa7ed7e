"""The command line: one function a command, wired here; the way every error ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from search_spaces.errors import EnvironmentProblem, InputError
from sweeps.commands.check import check
from sweeps.commands.demo_models import demo_models
from sweeps.commands.explain import explain
from sweeps.commands.isolate import isolate
from sweeps.commands.measure import measure
from sweeps.commands.options import NOBODY_READS, silence
from sweeps.commands.plan import plan
from sweeps.commands.probe import probe
from sweeps.commands.report import report
from sweeps.commands.resume import resume
from sweeps.commands.run import run
from sweeps.commands.schema import schema
from sweeps.commands.status import status
from sweeps.commands.submit import submit
from sweeps.commands.surface import surface
from sweeps.commands.sync import sync
from sweeps.commands.trace import trace
from sweeps.commands.version import version

DONE, FAILED, BAD_INPUT, BAD_ENVIRONMENT, INTERRUPTED = 0, 1, 2, 3, 130

app = typer.Typer(
    name="specsweep",
    help="Find out why EAGLE-3 speculative decoding is slow on an SGLang server, and which setting to run instead.",
    epilog="Exit codes: 0 done, 1 the work failed or found errors, 2 bad input, 3 something missing in the "
    "environment, 130 interrupted (state kept).",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(plan)
app.command()(run)
app.command()(resume)
app.command()(status)
app.command()(report)
app.command()(isolate)
app.command()(probe)
app.command()(submit)
app.command()(sync)
app.command()(check)
app.command()(explain)
app.command()(measure)
app.command()(trace)
app.command()(surface)
app.command()(demo_models)
app.command()(schema)
app.command()(version)


@app.callback(invoke_without_command=True)
def specsweep(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens to stderr.")] = False,
) -> None:
    import logging

    # the level is the handler's: a study's own log wants more than the terminal
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.INFO if verbose else logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=handler.level, force=True)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. What the user can mend is one line on stderr, without a traceback."""
    code = _run(argv)
    try:
        sys.stdout.flush()
    except OSError as error:
        silence(sys.stdout)
        if error.errno not in NOBODY_READS:
            return _refuse(f"standard output: {error.strerror}", code or FAILED)
    return code


def _run(argv: Sequence[str] | None) -> int:
    try:
        code = app(args=None if argv is None else list(argv), prog_name="specsweep", standalone_mode=False)
    except InputError as error:
        return _refuse(error, BAD_INPUT)
    except EnvironmentProblem as error:
        return _refuse(error, BAD_ENVIRONMENT)
    except typer.TyperException as error:
        return _refuse(error.format_message(), BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as error:  # how typer ends on a broken pipe
        return error.code if isinstance(error.code, int) else FAILED
    return code if isinstance(code, int) else DONE


def _refuse(message: object, code: int) -> int:
    typer.echo("specsweep: " + " ".join(str(message).splitlines()), err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
