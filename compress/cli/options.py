"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Code = Annotated[
    str | None,
    typer.Option(
        help="Where the architecture comes from: FILE.py:factory, package.module:factory, torchvision:NAME, timm:NAME."
    ),
]
Input = Annotated[
    list[str] | None, typer.Option(help="Input: 1x3x32x32, or ids:int64:1x128; once an input.", metavar="SPEC")
]
Trust = Annotated[
    bool, typer.Option("--trust-pickle", help="Allow the model file to run code of its own when it is opened.")
]
Data = Annotated[
    str | None,
    typer.Option(help="Data: image folder, .npz, .csv/.jsonl of text pairs, FILE.py:factory, or a URL of one."),
]
Preprocess = Annotated[
    str | None,
    typer.Option(help="imagenet, cifar10, none, a YAML/JSON file, or a tokenizer.json.", metavar="PRESET|FILE"),
]
Metric = Annotated[str | None, typer.Option(help="Metric, or FILE.py:function.  [by the data]")]
Threads = Annotated[int | None, typer.Option(help="Threads a runtime may use.  [CPUs available]")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show details.")]


def numbers(text: str | None, flag: str) -> list[int] | None:
    """Read whole numbers joined by commas; None stays None. Anything else is a ``UsageError`` that names the flag."""
    from compress.errors import UsageError

    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{flag} takes whole numbers such as 1,8, not '{text}'.") from error
