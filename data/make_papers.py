"""Makes a table of papers for ``notebooks/05_tables.ipynb``: the abstracts of SciFact with invented columns.

python data/make_papers.py scifact papers.parquet

The folder is SciFact in the layout of BEIR: ``corpus.jsonl``, with ``_id``, ``title`` and ``text`` in each line.
``id``, ``title`` and ``summary``, the first sentence of the abstract, are real; ``day``, ``journal``, ``citations`` and
``price`` follow from the id and mean nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

SOURCE = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets/scifact.zip"
ROWS = 5_000

PAPERS = """
COPY (
    SELECT
        _id::INTEGER AS id,
        title,
        left(regexp_extract(text, '^[^.]*'), 400) || '.' AS summary,
        DATE '2021-01-01' + (md5_number_lower(_id) % 1095)::INTEGER AS day,
        ['Cell Reports', 'Heart', 'Nature Medicine', 'PLOS One', 'The Lancet']
            [1 + (md5_number_lower(_id || 'j') % 5)::INTEGER] AS journal,
        (md5_number_lower(_id || 'c') % 400)::INTEGER AS citations,
        (md5_number_lower(_id || 'p') % 9000 / 100)::DECIMAL(6, 2) AS price
    FROM read_json($corpus, columns = {_id: 'VARCHAR', title: 'VARCHAR', text: 'VARCHAR'})
    ORDER BY id
    LIMIT $rows
) TO $target
"""


def main() -> None:
    """Write the table."""
    folder, target = sys.argv[1:]
    corpus = Path(folder) / "corpus.jsonl"
    if not corpus.is_file():
        raise SystemExit(f"There is no {corpus}. Unpack {SOURCE} and name its folder.")
    sql = PAPERS.replace("TO $target", "TO '" + target.replace("'", "''") + "'")
    duckdb.execute(sql, {"corpus": str(corpus), "rows": ROWS})


if __name__ == "__main__":
    main()
