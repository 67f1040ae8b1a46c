"""The application: its commands, and how every error becomes one sentence and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer
from rich.console import Console

import compress
from compress.cli.compare import compare
from compress.cli.evaluate import evaluate
from compress.cli.inspect import inspect
from compress.cli.run import run
from compress.errors import CompressError

INTERRUPTED = 130
_INTERRUPTED = "[bold]compress:[/] interrupted; the same command goes on where this one stopped."

app = typer.Typer(
    name="compress",
    help="Compress a trained model, export it, and measure fairly what was gained and what it cost.",
    epilog="Exit codes: 0 done and within budget · 2 wrong usage or recipe · 3 model or data cannot be used · "
    "4 a stage failed · 5 budget not met · 130 interrupted",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"compress {compress.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command()(run)
app.command()(inspect)
app.command(name="eval")(evaluate)
app.command()(compare)


def main() -> None:
    """Run the command line; the process ends with one of the documented exit codes, never with a traceback."""
    signal.signal(signal.SIGTERM, _interrupt)
    err = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        # Typer turns Ctrl-C into this exit code here; what a command returns is None otherwise.
        code = app(standalone_mode=False, prog_name="compress")
        if code == INTERRUPTED:
            err.print(_INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)
    except CompressError as error:
        err.print(f"[bold red]compress:[/] {_escaped(str(error))}")
        _explain(err, error)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        err.print(_INTERRUPTED)
        sys.exit(INTERRUPTED)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except BrokenPipeError:
        # The reader of our output went away, as `head` does; nothing is wrong with the run.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:  # noqa: BLE001 - the last resort: a sentence and an exit code, never a traceback
        _usage_or_raise(err, error)


def _usage_or_raise(err: Console, error: Exception) -> None:
    """Print what the option parser complains of; anything else is a fault of ours and says so."""
    format_message = getattr(error, "format_message", None)
    if callable(format_message):
        err.print(f"[bold red]compress:[/] {_escaped(format_message())}")
        sys.exit(2)
    reason = str(error).strip().split("\n")[0]
    err.print(
        f"[bold red]compress:[/] unexpected {type(error).__name__}: {_escaped(reason)} "
        "(a fault of compress; -v shows the traceback)"
    )
    _explain(err, error)
    sys.exit(4)


def _explain(err: Console, error: BaseException) -> None:
    if {"-v", "--verbose"} & set(sys.argv[1:]):
        import traceback

        err.print("".join(traceback.format_exception(error)), markup=False)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
