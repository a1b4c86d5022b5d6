"""Runs the notebooks in a folder of their own.

``python tests/support/refresh_notebooks.py [NAME …]`` keeps the new outputs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
# The collection that the notebook of tables reads, among the data for tests.
SCIFACT = ROOT.parent / "shared" / "data" / "scifact"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def working_copy(folder):
    """Put the data where the notebooks look for it; return the folder that they run in."""
    shutil.copytree(ROOT / "data", folder / "data")
    (folder / "notebooks").mkdir()
    return folder / "notebooks"


def handbook_digest():
    """Return the SHA-256 of the handbook's pages, by which a notebook names those that its outputs were made of."""
    pages = sorted((ROOT / "data" / "handbook").rglob("*.md"))
    return hashlib.sha256(b"".join(page.read_bytes() for page in pages)).hexdigest()


def run(notebook, folder, after_cell=None):
    """Return a notebook with the outputs of a new run; ``after_cell`` is called with the number of each cell run."""
    # Commands of cells find the sqlrag, and the python, of this environment.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "PYTHONPATH": str(ROOT), "PYDEVD_DISABLE_FILE_VALIDATION": "1", "SCIFACT": str(SCIFACT)}
    fresh = nbformat.read(notebook, as_version=4)
    client = NotebookClient(fresh, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    if after_cell:
        client.on_cell_executed = lambda cell, cell_index, execute_reply: after_cell(cell_index)
    client.execute(env={**os.environ, **own})
    for cell in fresh.cells:
        cell.metadata.pop("execution", None)
        # Progress bars and messages are gone when a cell is done.
        cell.outputs = [o for o in cell.get("outputs", []) if o.get("name") != "stderr"] if "outputs" in cell else []
        if cell.cell_type != "code":
            del cell["outputs"]
    fresh.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    if "data/handbook" in str(fresh):
        fresh.metadata["handbook"] = handbook_digest()
    return fresh


def printed(notebook):
    """Return what each code cell shows, as text without ids of objects."""
    shown = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
            shown.append(re.sub(r" at 0x[0-9a-f]+", "", "".join(texts)))
    return shown


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        folder = working_copy(Path(temporary))
        for path in NOTEBOOKS:
            if not sys.argv[1:] or path.stem in sys.argv[1:]:
                nbformat.write(run(path, folder), path)
                print(f"{path.name}: {path.stat().st_size:,} bytes")
