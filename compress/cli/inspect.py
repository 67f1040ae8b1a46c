"""``compress inspect``: what a model file is, without running foreign code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from compress.cli import options as o

if TYPE_CHECKING:
    from compress.load.inspect import Inspection


def inspect(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Model file, or an architecture such as torchvision:resnet50.")
    ],
    code: o.Code = None,
    input: o.Input = None,
    layers: Annotated[int, typer.Option(help="Layers to list; 0: none, -1: all.")] = 20,
    trust_pickle: o.Trust = False,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Show kind, signature, layers, parameters and MACs of MODEL, and what would be refused and why.

    Code inside the file is never run; a file that --code names is, since you named it.
    """
    import json

    from compress.artifact import ModelSource
    from compress.load.inspect import inspect_file

    found = inspect_file(ModelSource(model, code or "", tuple(input or ()), trust_pickle))
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        _print(found, layers)


def _print(found: Inspection, layers: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"[bold]{escape(found.path)}[/]: {escape(found.kind)}")
    facts = {
        "size": f"{found.size_bytes / 1e6:.3g} MB" if found.size_bytes is not None else None,
        "parameters": f"{found.parameters:,}" if found.parameters is not None else None,
        "MACs of one sample": f"{found.macs:,}" if found.macs is not None else None,
        "element types": ", ".join(f"{name} ({count:,} values)" for name, count in found.dtypes.items()) or None,
    }
    for name, value in facts.items():
        console.print(f"  {name}: {value if value is not None else 'not known'}")
    for title, specs in (
        ("input", found.signature.inputs if found.signature else ()),
        ("output", found.signature.outputs if found.signature else ()),
    ):
        for spec in specs:
            console.print(f"  {title} {escape(str(spec))}")
    for text in found.refused:
        console.print(f"  [bold red]refused:[/] {escape(text)}")
    for text in found.notes:
        console.print(f"  note: {escape(text)}")
    shown = found.layers if layers < 0 else found.layers[:layers]
    if shown:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("layer", "type", "weight", "parameters"):
            table.add_column(column, justify="right" if column == "parameters" else "left", overflow="fold")
        for layer in shown:
            shape = "×".join(map(str, layer.shape)) if layer.shape else ""
            table.add_row(escape(layer.name), escape(layer.type), shape, f"{layer.parameters:,}")
        console.print(table)
    if len(shown) < len(found.layers):
        console.print(f"  … and {len(found.layers) - len(shown)} more layers (--layers -1 lists all)")
