"""What a notebook shows of an open file."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from sqlrag.store.schema import read_sql
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import duckdb


def summary(con: duckdb.DuckDBPyConnection, path: Path, *, read_only: bool) -> tuple[dict[str, str], list[str]]:
    """Return the facts about a file by their names, and what is amiss with it."""
    documents, chunks, model, dimensions, failures, in_step, collections = con.execute(
        read_sql("facets/summary")
    ).fetchall()[0]
    facts = {
        "Model": f"{model} ({dimensions} dimensions)",
        "Documents": f"{documents:,}",
        "Chunks": f"{chunks:,}",
        "Collections": collections or "none",
        "Size": f"{path.stat().st_size / 1e6:,.1f} MB" if path.exists() else "the file is gone",
        "Open": "for reading" if read_only else "for writing: no other process can open it",
    }
    amiss = [] if in_step else ["The word index does not hold every chunk: repair(db_path) mends it."]
    if failures:
        amiss.append(f"{counted(failures, 'document')} could not be used: FROM ingest_failures says why.")
    return facts, amiss


def summary_html(path: Path | str, facts: Mapping[str, str], amiss: Sequence[str]) -> str:
    """Return a table of facts, escaped; it needs no style of its own."""
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    notes = "".join(f"<p><em>Note: {html.escape(note)}</em></p>" for note in amiss)
    return f"<div><p><strong>Store</strong> {html.escape(str(path))}</p>{notes}<table>{rows}</table></div>"
