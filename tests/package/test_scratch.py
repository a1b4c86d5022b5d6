"""Temporary folders: locked by who uses them, removed for those who were killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from sqlrag import scratch
from tests.support.helpers import ROOT

pytest.importorskip("fcntl")


def test_folders_of_the_killed_are_removed_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "sqlrag-of-someone").mkdir()
    code = "import sys; from sqlrag import scratch; f = scratch.Folder(); print(f.path, flush=True); sys.stdin.read()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    with (
        closing(scratch.Folder()) as own,
        subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, text=True) as other,
    ):
        (own.path / "x.md").write_text("x")
        left = Path(other.stdout.readline().strip())
        scratch.sweep()
        assert left.is_dir()
        other.kill()
        other.wait(30)
        scratch.sweep()
        assert not left.parent.exists()
        assert (own.path / "x.md").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["sqlrag-of-someone"]
