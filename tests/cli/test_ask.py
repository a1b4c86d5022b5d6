"""``sqlrag ask`` and ``sqlrag prompt``: what they print where, and their exit codes."""

from __future__ import annotations

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from sqlrag import prepare_embeddings
from sqlrag.cli import app
from tests.support.chat_server import KEY, ChatServer, Status, serving
from tests.support.helpers import build

PAGES = {
    "pump_md": "---\ntags: [machine]\n---\n# Pump\n\nOpen the red valve first.\n",
    "oven_md": "# Oven\n\nBread bakes for forty minutes.\n",
}


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    return build(tmp_path_factory.mktemp("kb"), **PAGES)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "SQLRAG_CHAT_MODEL", "SQLRAG_DB"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def ask(kb, server, *options):
    with serving(server) as url:
        return run(
            *("ask", "Which valve?", "--db", kb, "--chat-model", "tiny", "--base-url", url, "--max-retries", 0),
            *("--timeout", 5, *options),
        )


class TestAsk:
    @pytest.mark.parametrize("options", [(), ("--stream",)])
    def test_answer_and_sources(self, kb, options):
        done = ask(kb, ChatServer("The red valve [1]."), *options)
        assert done.exit_code == 0, done.stderr
        assert done.stdout.startswith(
            "The red valve [1].\n\nSources (* cited):\n*[1] pump.md, Pump, characters 24-57, sc"
        )
        assert "\n [2] oven.md, Oven, " in done.stdout
        assert done.stderr == ""

    def test_json_is_the_whole_answer(self, kb):
        found = json.loads(ask(kb, ChatServer("It is [1], [8]."), "--format", "json", "--request-id", "r-9").stdout)
        assert (found["text"], found["citations"], found["unknown_citations"]) == ("It is [1], [8].", [1], [8])
        assert found["request_id"] == "r-9"
        assert found["sources"][0]["quote"] == "# Pump\n\nOpen the red valve first."

    def test_streamed_json_is_an_event_a_line(self, kb):
        done = ask(kb, ChatServer("The red valve [1]."), "--format", "json", "--stream")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert [event["type"] for event in events] == ["sources", "text", "text", "text", "text", "usage", "done"]
        assert events[-1]["answer"]["text"] == "".join(event.get("text", "") for event in events)

    def test_csv_is_the_sources(self, kb):
        rows = list(csv.DictReader(io.StringIO(ask(kb, ChatServer(), "--format", "csv").stdout)))
        assert [row["number"] for row in rows] == ["1", "2"]
        assert (rows[0]["file"], rows[0]["spans"]) == ("pump.md", "[[24, 57]]")

        assert [row["answer"] for row in rows] == ["The red valve comes first [1]."] * 2
        done = ask(kb, ChatServer(), "--format", "csv", "--tag", "no-such-tag")
        ((number, answer),) = [(row["number"], row["answer"]) for row in csv.DictReader(io.StringIO(done.stdout))]
        assert (number, answer[:26]) == ("", "Nothing was found for this")

    @pytest.mark.slow
    def test_a_name_is_one_line(self, tmp_path):
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "we\nird.md").write_text("# Pump\n\nOpen the red valve.\n", encoding="utf-8")
        prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", embedding_provider="hashing", progress="off")
        done = ask(tmp_path / "kb.duckdb", ChatServer("It is [1], [7]."))
        assert "\n*[1] we ird.md, Pump, characters " in done.stdout
        assert done.stderr.splitlines() == ["note: The answer cites [7], but its sources are [1] to [1]."]

    def test_options_reach_the_search_and_the_model(self, kb, tmp_path):
        (tmp_path / "t.txt").write_text("Q: {{ question }} S: {{ contexts[0].block }}", encoding="utf-8")
        server = ChatServer()
        done = ask(
            kb, server, "--tag", "machine", "--temperature", 0.5, "--max-tokens", 9, "--stop", "##",
            "--system", "Be brief.", "--template", tmp_path / "t.txt", "--top-k", 3, "--context-window", 1000,
        )  # fmt: skip
        assert done.exit_code == 0, done.stderr
        (body,) = server.requests
        assert (body["temperature"], body["max_tokens"], body["stop"]) == (0.5, 9, ["##"])
        assert body["messages"][0]["content"].startswith("Be brief.")
        assert body["messages"][1]["content"].startswith("Q: Which valve? S: [1] [Source: pump.md")
        assert "oven" not in body["messages"][1]["content"]

    def test_expand_asks_the_model_twice(self, kb):
        server = ChatServer("red valve [1]")
        assert ask(kb, server, "--expand").exit_code == 0
        assert len(server.requests) == 2

    def test_the_model_fails(self, kb, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        done = ask(kb, ChatServer(all=Status(401, f"bad key {KEY}")))
        assert done.exit_code == 1
        assert done.stdout.startswith("Sources:\n [1] pump.md")
        assert "error: The chat model 'tiny' at http" in done.stderr
        assert KEY not in done.output

    def test_a_stream_that_breaks(self, kb):
        done = ask(kb, ChatServer("one two three four", all="broken stream"), "--stream")
        assert done.exit_code == 1
        assert done.stdout.startswith("one two three\n\nSources:\n")

    def test_nothing_found(self, kb):
        server = ChatServer()
        done = ask(kb, server, "--tag", "no-such-tag", "--stream")
        assert done.exit_code == 0
        assert done.stdout == "Nothing was found for this question, so the model was not called.\n"
        assert "note: No chunk passes the filters" in done.stderr
        assert server.requests == []

    def test_no_answer_steers_the_terminal(self, kb):
        done = ask(kb, ChatServer("red \x1b[31mvalve [1]"), "--stream")
        assert "\x1b" not in done.stdout
        assert done.stdout.startswith("red  [31mvalve [1]\n")

    def test_bad_usage(self, kb):
        assert run("ask", "What?", "--db", kb).exit_code == 2  # no model
        done = run("ask", "What?", "--db", kb, "--chat-model", "gpt-5")
        assert done.exit_code == 1
        assert "needs a key: set OPENAI_API_KEY" in done.stderr


class TestPrompt:
    def test_it_prints_what_a_model_would_be_asked(self, kb):
        done = run("prompt", "Which valve?", "--db", kb, "--top-k", 1, "--system", "Be brief.")
        assert done.exit_code == 0, done.stderr
        assert done.stdout.startswith("Be brief.\n\nAnswer the question from its numbered sources")
        assert "\nQuestion:\nWhich valve?\n\nSources:\n\n[1] [Source: pump.md score=" in done.stdout

    def test_it_is_what_ask_sends(self, kb):
        server = ChatServer()
        ask(kb, server)
        rows = json.loads(run("prompt", "Which valve?", "--db", kb, "--format", "json").stdout)
        assert rows["messages"] == server.requests[0]["messages"]
        assert [source["file"] for source in rows["sources"]] == ["pump.md", "oven.md"]
        assert len(run("prompt", "Which valve?", "--db", kb, "--format", "csv").stdout.splitlines()) > 2

    def test_what_does_not_fit_is_told(self, kb):
        done = run("prompt", "Which valve?", "--db", kb, "--max-tokens", 100, "--context-window", 330)
        assert done.exit_code == 0, done.stderr
        assert "note: 1 chunk did not fit into " in done.stderr

    def test_nothing_found_and_a_wrong_template(self, kb, tmp_path):
        done = run("prompt", "Which valve?", "--db", kb, "--tag", "no-such-tag")
        assert "(none)" in done.stdout
        (tmp_path / "t.txt").write_text("a\n{{ wrong", encoding="utf-8")
        done = run("prompt", "Which valve?", "--db", kb, "--template", tmp_path / "t.txt")
        assert done.exit_code == 2
        assert "error: The template is wrong in line 2" in done.stderr
        (tmp_path / "b.txt").write_bytes(b"\xff\xfe\xff")
        assert run("prompt", "Which valve?", "--db", kb, "--template", tmp_path / "b.txt").exit_code == 1
