"""REST, fuzzed by schemathesis against its own schema: no server error, and every answer as the schema says."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, settings

from sqlrag.adapters.rest import create_app
from sqlrag.adapters.rest.config import ServerOptions
from tests.support.stores import make_small_store

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
EXAMPLES = int(os.environ.get("SQLRAG_FUZZ_EXAMPLES", "6"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
# What the server says on purpose: no model, no folder, busy.
TOLD = (501, 503, 504)


FILE = Path(mkdtemp(prefix="sqlrag-rest-")) / "small.duckdb"
make_small_store(FILE)
# Small limits, since what is sent goes as far as they do, and a little further.
OPTIONS = ServerOptions(write=True, hosts=("testserver",), seconds=20, max_items=12, max_question_chars=60)
app = create_app(FILE, OPTIONS)
schema = schemathesis.openapi.from_asgi("/openapi.json", app)


@pytest.fixture(scope="module", autouse=True)
def store():
    yield
    shutil.rmtree(FILE.parent)


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=list(HealthCheck),
)
def test_no_server_error_and_answers_as_the_schema_says(case):
    response = case.call()
    checks = CHECKS[1:] if response.status_code in TOLD else CHECKS
    case.validate_response(response, checks=checks)
