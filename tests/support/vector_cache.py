"""Lets the bundled model embed a text once in a run of the tests: pages of the handbook prepare the same files again.

Its vectors depend on their text alone, so those that it made before are the same to the bit. As a script it is the
command line, which keeps them in the folder that the variable SQLRAG_TEST_VECTORS names.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from sqlrag.embedders import onnx

FOLDER = "SQLRAG_TEST_VECTORS"


@contextmanager
def remembered(base: Path):
    """Let this process and the commands that it starts remember vectors; ``base`` is the run's temporary folder.

    They are kept there, or in the folder that the variable SQLRAG_TEST_VECTORS names, which several runs may share.
    """
    # Each worker of pytest-xdist has a folder inside that of the run.
    own = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "vectors"
    folder = Path(os.environ.get(FOLDER) or own)
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx, "_load_bundle", loader(folder))
        patch.setenv(FOLDER, str(folder))
        yield


def loader(folder: Path):
    """Return what loads the bundled model, with a memory in a folder that processes may share."""
    load = onnx._load_bundle

    def place(text: str) -> Path:
        return folder / f"{hashlib.sha256(text.encode()).hexdigest()}.npy"

    def remembering(open_session):
        model = load(open_session)
        if open_session is not onnx._open_session:  # another runtime, whose vectors are not the same to the bit
            return model

        def encode(texts, kind):
            missing = [text for text in texts if not place(text).exists()]
            for text, vector in zip(missing, model.encode(missing, kind) if missing else [], strict=True):
                written = place(text).with_suffix(f".{os.getpid()}-{id(texts)}.npy")
                np.save(written, vector)
                written.replace(place(text))
            return np.array([np.load(place(text)) for text in texts])

        return model._replace(encode=encode)

    return remembering


def remember():
    """Remember for the rest of this process, in the folder that the variable names, if it does."""
    if FOLDER in os.environ:
        onnx._load_bundle = loader(Path(os.environ[FOLDER]))


if __name__ == "__main__":
    from sqlrag.cli import main

    remember()
    main()
