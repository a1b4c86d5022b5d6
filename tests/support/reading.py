"""What the tests of readers share."""

import pytest

from sqlrag.errors import DocumentError
from sqlrag.ingest.folder import read_document


def read(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_document(path, tmp_path)


def failure(tmp_path, content, name):
    with pytest.raises(DocumentError) as caught:
        read(tmp_path, content, name)
    assert caught.value.doc_id == name
    return caught.value
