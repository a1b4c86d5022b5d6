"""Builds on Ray: needs the extra ``ray``. The file is that of the local engine, whatever becomes of the workers.

Ray starts once for most of these tests, with two workers; the embedders below are sent to them.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pytest
from helpers import HASHING, MINILM, ROOT, real_model, write
from test_pipeline import left_behind, pdf

from sqlrag import Store, update_embeddings
from sqlrag.embedders import PROBE_TEXT, HashingEmbedder
from sqlrag.errors import InputError, MissingExtraError, NotFoundError, ProviderError
from sqlrag.ingest.pipeline import prepare_file

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray, of the extra ray")

# What differs between two builds by the same engine, too.
_TIMES = {"created_at", "failed_at", "started_at", "finished_at", "seconds", "run_id"}
_COUNTS = ("files", "documents", "chunks", "failed", "empty", "reused", "failures", "duplicates", "skipped", "warnings")


@pytest.fixture(scope="module")
def two_workers():
    """Have Ray run in this process, as a program may that uses it for other things, too."""
    from sqlrag.ingest.distributing import _ray, check_ray

    check_ray()
    with _ray(2):
        yield


def contents(path, *, without=()):
    """Return every row of every table, by table."""
    found = {}
    with duckdb.connect(str(path), read_only=True) as con:
        for (table,) in con.execute("SELECT table_name FROM duckdb_tables() ORDER BY table_name").fetchall():
            names = [name for name, *_ in con.execute(f"DESCRIBE {table}").fetchall()]
            kept = ", ".join(f'"{name}"' for name in names if name not in _TIMES and name not in without)
            found[table] = con.execute(f"SELECT {kept} FROM {table} ORDER BY ALL").fetchall()
    # The keys of this table that say when.
    found["embedding_metadata"] = [row for row in found["embedding_metadata"] if not row[0].endswith("_at")]
    return found


def both(root, tmp_path, **options):
    """Build a folder by both engines; return the reports, local first, after comparing what can be equal."""
    built = [
        prepare_file(root, tmp_path / f"{engine}.duckdb", engine=engine, **{**HASHING, **options})
        for engine in ("local", "ray")
    ]
    local, by_ray = (one.report for one in built)
    assert [getattr(by_ray, name) for name in _COUNTS] == [getattr(local, name) for name in _COUNTS]
    assert left_behind(tmp_path) == []
    with Store(built[1].path) as store:
        assert store.check() == []
    return local, by_ray


def files(tmp_path):
    """Return a folder of many kinds of files: sound, broken, empty, equal ones, with odd names."""
    root = write(
        tmp_path / "docs",
        a_md="---\ntags: [duck, 1.10]\nyear: 2024\nwhen: 2024-05-06\n10: x\n9: y\n_node_type: z\n---\n# A\n\nalpha\n\n## B\n\nbeta",
        again__a_md="# Same\n\nthe same words",
        again__b_md="# Same\n\nthe same words",
        again__c_txt="# Same\n\nthe same words",
        bad_md="---\n: [\n---\n\nfront matter that is no YAML",
        broken_pdf=b"%PDF-1.4 nothing",
        empty_md="",
        blank_txt=" \n\n",
        legacy_txt="café à la crème, naïveté".encode("cp1252"),
        long_txt="word " * 3000,
        pages_pdf=pdf("gamma", "", "delta"),
        same_md="",
        zip_txt=b"PK\x03\x04 zip",
        image_png=b"\x89PNG",
    )
    write(root, **{f"more__d{number:02}_md": f"# {number}\n\n" + f"text {number} " * 300 for number in range(20)})
    (root / "a b (1)'s é.md").write_text("# Blank\n\nin its name", encoding="utf-8")
    (root / "cafe\u0301.md").write_text("decomposed", encoding="utf-8")
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.md")).write_text("no UTF-8", encoding="utf-8")
    (root / "link.md").symlink_to(root / "long.txt")
    return root


@needs_ray
@pytest.mark.usefixtures("two_workers")
class TestSameFile:
    @pytest.mark.parametrize("options", [{}, {"skip_duplicates": True, "collection": "notes", "chunk_size": 50}])
    def test_every_row_is_that_of_the_local_engine(self, tmp_path, options):
        local, by_ray = both(files(tmp_path), tmp_path, **options)
        one, other = (contents(tmp_path / f"{engine}.duckdb", without={"embedded", "embedding_calls"}) for engine in ("local", "ray"))
        assert other == one
        assert {failure.status for failure in local.failures} == {"failed", "empty"}
        assert len(local.duplicates) == 1
        assert len(local.warnings) >= 2
        assert len(one["documents"]) > 100
        # Equal texts count twice where two workers have one each.
        assert by_ray.embedded >= local.embedded
        assert set(by_ray.seconds) == set(local.seconds)

    @pytest.mark.parametrize("model", real_model and [pytest.param(MINILM, marks=real_model)])
    def test_the_handbook_by_a_real_model(self, tmp_path, model):
        both(ROOT / "data" / "handbook", tmp_path, embedding_provider="auto", embed_model_name=model)
        paths = [tmp_path / f"{engine}.duckdb" for engine in ("local", "ray")]
        one, other = (contents(path, without={"embedding", "embedded", "embedding_calls"}) for path in paths)
        # Binary codes of vectors whose last bits differ may differ, too; the others may not.
        for table in set(one) - {"binary_codes", "centroids"}:
            assert other[table] == one[table], table
        vectors = []
        for path in paths:
            with duckdb.connect(str(path), read_only=True) as con:
                rows = con.execute("SELECT embedding FROM documents ORDER BY rid").fetchall()
                vectors.append(np.array([row[0] for row in rows]))
        assert np.abs(vectors[0] - vectors[1]).max() < 1e-6
