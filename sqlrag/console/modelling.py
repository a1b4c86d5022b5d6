"""``sqlrag models``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlrag.console.app import command
from sqlrag.console.options import FormatName  # noqa: TC001 - typer reads the annotations
from sqlrag.console.printing import Format, write, write_csv, write_json

if TYPE_CHECKING:
    from sqlrag.embedders.models import Models


@command("models", "Tell which embedding models can be used here.", "sqlrag models", "sqlrag models --format json")
def models(form: FormatName = Format.table) -> None:
    """Tell which embedding providers can be used here, why the others cannot, and which models need no network."""
    from sqlrag.embedders.models import models

    found = models()
    if form is Format.json:
        write_json({name: [row._asdict() for row in rows] for name, rows in found._asdict().items()})
    elif form is Format.csv:
        ready = [{"name": model.provider, "usable": True, "ready_model": model.model_name} for model in found.ready]
        write_csv([*(provider._asdict() for provider in found.providers), *ready], _COLUMNS)
    else:
        write(_text(found))


_COLUMNS = ["name", "usable", "reason", "ready_model"]


def _text(found: Models) -> str:
    width = max(len(provider.name) for provider in found.providers) + 2
    lines = ["Providers (--provider; auto is onnx):"]
    lines += [
        f"  {provider.name:<{width}}{'usable' if provider.usable else 'not usable: ' + provider.reason}"
        for provider in found.providers
    ]
    lines += ["", "Models that are ready here without network (--model):"]
    lines += [f"  {model.provider:<{width}}{model.model_name}" for model in found.ready] or ["  none"]
    return "\n".join(lines)
