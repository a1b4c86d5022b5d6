"""Add to sql/digests.txt after a change of an object in sql/: python tests/support/refresh_digests.py

The lines that are there stay: files of a release that made the object otherwise are still opened. Take out by hand what
no release had.
"""

import duckdb

from sqlrag.adapters.publish import published_macro
from sqlrag.engines.duckdb.definitions import digest_lines
from sqlrag.engines.duckdb.schema import create_objects, sql_folder

target = sql_folder() / "digests.txt"
with duckdb.connect() as con:
    create_objects(con, 384)
    lines = {*digest_lines(con), *target.read_text("utf-8").splitlines()}
    con.execute("CREATE TABLE published_headings (rid INTEGER, headings VARCHAR)")
    con.execute(published_macro())
    lines |= {line for line in digest_lines(con) if line.startswith("main.clause_search ")}
target.write_text("\n".join(sorted(lines)) + "\n", "utf-8")
