"""What happens between the search and the prompt of an answer: repeats, another order, shorter texts."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sqlrag import Candidate, CompressPolicy, InputError, ProviderError, RetrievePlan, Store, answer, hybrid_query
from sqlrag.answers.answer import prepare_prompt
from sqlrag.blocks import rerank
from sqlrag.cli import app
from sqlrag.embedders import HashingEmbedder
from sqlrag.types import Candidates
from tests.support.chat_server import ChatServer, serving
from tests.support.cross_encoder import make_cross_encoder
from tests.support.helpers import build

QUESTION = "How is the red valve of the pump opened?"
LONG = (
    "The pump stands in the cellar. It was painted green last year. Nobody comes here in winter. "
    "The red valve is opened by hand. Turn it twice. After that the hall was swept. Then the lamp was lit. "
    "Birds sat on the roof. The day ended quietly.\n"
)
PAGES = {
    "a_txt": "The red valve of the pump is opened first.\n",
    "b_txt": "THE RED  VALVE of the pump is opened\nfirst.\n",  # the same but for blank space and case
    "c_txt": "The red valve of the pump is opened first, by hand.\n",
    "d_txt": "The blue valve of the pump is opened last.\n",
    "e_txt": "A pump has a valve and a cat.\n",
    "long_txt": LONG,
}


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    return build(tmp_path_factory.mktemp("kb"), **PAGES)


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(rerank, "_loaded", {})
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "SQLRAG_CHAT_MODEL", "SQLRAG_DB"):
        monkeypatch.delenv(name, raising=False)


def ask(kb, server=None, question=QUESTION, **more):
    with serving(server or ChatServer("It is [1].")) as url:
        return answer(question, kb, chat_model="tiny", base_url=url, **{"max_retries": 0, "timeout": 5, **more})


def names(found):
    return [source["doc_id"] for source in found.sources]


def cosines(kb, doc_ids):
    """The cosines of the question and the whole texts below their names, by the embedder itself."""
    embedder = HashingEmbedder("hashing-64")
    with Store(kb) as store:
        texts = {doc_id: store.get_source_documents([f"{doc_id}#0"])[0]["text"] for doc_id in doc_ids}
    named = [f"{Path(doc_id).stem}\n\n{texts[doc_id].strip()}" for doc_id in doc_ids]
    rows = embedder.embed(named, kind="document")
    target = embedder.embed([QUESTION], kind="query")[0]
    shares = rows @ target / (np.linalg.norm(rows, axis=1) * np.linalg.norm(target))
    return dict(zip(doc_ids, shares, strict=True))


def by_cat(question, texts):
    return [text.count("cat") for text in texts]


class TestRepeats:
    def test_no_text_is_in_the_prompt_twice(self, kb):
        found = ask(kb)
        texts = [" ".join(source["quote"].split()).casefold() for source in found.sources]
        assert len(texts) == len(set(texts)) == len(PAGES) - 1
        (notice,) = found.notices
        assert notice in (
            "Left out, since a better chunk has the same text: b.txt#0 (as a.txt#0).",
            "Left out, since a better chunk has the same text: a.txt#0 (as b.txt#0).",
        )

    def test_the_next_best_takes_the_place(self, kb):
        best = list(dict.fromkeys(row["doc_id"] for row in hybrid_query(QUESTION, kb, top_k=6)))
        distinct = [name for name in best if name != "b.txt"]
        assert best.index("a.txt") < best.index("b.txt") < 3
        assert names(ask(kb, plan=RetrievePlan(k=3))) == distinct[:3]

    def test_contexts_of_ones_own_are_not_repeated_either(self):
        given = [{"text": "one"}, Candidate("x", 3, "two"), {"text": " ONE "}, Candidate("y", 0, "two")]
        found = ask(None, contexts=given)
        assert [source["quote"] for source in found.sources] == ["one", "two"]
        assert found.notices == ["Left out, since a better chunk has the same text: one (as another), y#0 (as x#3)."]

    def test_passages_that_become_the_same_by_compressing(self):
        def passage(doc_id, rest):
            text = f"{rest} The red valve opens first."
            return Candidate(doc_id, 0, text, 0.5, i_start=0, i_end=len(text))

        given = [passage("a", "Snow fell."), passage("b", "Rain fell.")]
        assert len(ask(None, contexts=given).sources) == 2
        found = ask(None, contexts=given, question="red valve", compress=CompressPolicy(window=0))
        assert [source["quote"] for source in found.sources] == ["The red valve opens first."]
        assert "b#0 (as a#0)" in found.notices[0]


class TestRerank:
    def test_a_function_gets_the_pool_and_the_best_k_are_taken(self, kb):
        asked = []

        def scorer(question, texts):
            asked.append((question, len(texts)))
            return by_cat(question, texts)

        plan = RetrievePlan(k=2)
        assert "e.txt" not in names(ask(kb, plan=plan))
        found = ask(kb, rerank=scorer, plan=plan)
        assert asked == [(QUESTION, len(PAGES) - 1)]  # without the repeat
        assert len(found.sources) == 2
        assert (names(found)[0], found.sources[0]["score"], found.sources[0]["score_type"]) == ("e.txt", 1.0, "rerank")
        assert found.timings["total"] >= found.timings["rerank"] > 0
        assert "compress" not in found.timings

    def test_the_pool_is_that_of_the_plan(self, kb):
        sizes = []
        for plan in (RetrievePlan(k=2, candidate_pool=3), RetrievePlan(k=4, candidate_pool=1)):
            ask(kb, rerank=lambda _, texts: sizes.append(len(texts)) or [1.0] * len(texts), plan=plan)
        assert sizes == [2, 3]  # 3 and 4, less the repeat of the best

    def test_cosine_is_that_of_the_stored_vectors(self, kb):
        wanted = cosines(kb, ["c.txt", "d.txt", "e.txt", "long.txt"])
        found = ask(kb, rerank="cosine", plan=RetrievePlan(mode="lexical"))
        given = {source["doc_id"]: source["score"] for source in found.sources}
        assert {name: given[name] for name in wanted} == pytest.approx(wanted, abs=1e-6)
        assert len(given) == len(PAGES) - 1
        assert list(given.values()) == sorted(given.values(), reverse=True)
        assert {source["score_type"] for source in found.sources} == {"rerank"}

    def test_a_cross_encoder_by_its_folder(self, kb, tmp_path):
        # Its logit is 100 times the weights of the question, 0 here, and those of the text: 1.5 for "cat".
        folder = str(make_cross_encoder(tmp_path))
        found = ask(kb, question="Which valve?", rerank=folder, plan=RetrievePlan(k=1))
        assert (names(found), found.sources[0]["score"]) == (["e.txt"], 1.5)

    @pytest.mark.parametrize(
        ("model", "says"),
        [
            (lambda question, texts: 1 / 0, "failed: ZeroDivisionError"),
            (lambda question, texts: [1.0], "returned scores of the shape"),
            (lambda question, texts: [float("nan")] * len(texts), "returned nan for text 0"),
            ("no/such-cross-encoder", "no/such-cross-encoder"),
        ],
        ids=["raises", "too few", "nan", "not there"],
    )
    def test_where_it_fails_the_order_is_as_it_was(self, kb, model, says, monkeypatch):
        if isinstance(model, str):
            monkeypatch.setenv("HF_HUB_OFFLINE", "1")
            monkeypatch.setattr(rerank, "_load", _not_there)
        plan = RetrievePlan(k=2)
        plain, found = ask(kb, plan=plan), ask(kb, rerank=model, plan=plan)
        assert found.sources == plain.sources
        (notice,) = [notice for notice in found.notices if notice not in plain.notices]
        assert notice.startswith("Not reranked, the order is unchanged: ")
        assert says in notice
        assert found.error is None

    def test_the_question_cannot_be_embedded(self, kb):
        class Down(HashingEmbedder):
            def embed(self, texts, *, kind):
                raise ProviderError("the server is away")

        with Store(kb, embedder=Down("hashing-64")) as store:
            found = ask(store, rerank="cosine", plan=RetrievePlan(mode="lexical"))
        assert found.notices[0].startswith("Not reranked, the order is unchanged: ")
        assert "the server is away" in found.notices[0]
        assert {source["score_type"] for source in found.sources} == {"bm25"}

    def test_a_vector_is_damaged(self, tmp_path):
        kb = build(tmp_path, **PAGES)
        with Store(kb, read_only=False) as store:
            store.cursor().execute("UPDATE documents SET embedding = [0.0 FOR _ IN embedding] WHERE doc_id = 'd.txt'")
            for more in ({"rerank": "cosine"}, {"diversity": 0.5}, {"rerank": by_cat, "diversity": 0.5}):
                found = ask(store, plan=RetrievePlan(mode="lexical"), **more)
                assert any("the store has no valid vectors" in notice for notice in found.notices), more
                assert {source["score_type"] for source in found.sources} == {"bm25"}

    def test_after_other_wordings(self, kb):
        def reply(body):
            return "a cat" if "search queries" in body["messages"][0]["content"] else "It is [1]."

        plan = RetrievePlan(mode="lexical", k=1)
        found = ask(kb, ChatServer(reply), question="blue", expand="llm", rerank=by_cat, plan=plan)
        assert found.queries == ["blue", "a cat"]
        assert names(found) == ["e.txt"]

    def test_nothing_found_loads_no_model(self, kb):
        found = ask(kb, rerank="no/such-model", compress=True, plan=RetrievePlan(tags_any=("none",)))
        assert found.finish_reason == "no_sources"
        assert not any("reranked" in notice for notice in found.notices)


def _not_there(name, *_):
    raise OSError(f"{name} is not there")


class TestDiversity:
    def test_it_is_that_of_the_block(self, kb):
        from sqlrag import drop_near_duplicates, rerank, retrieve

        with Store(kb) as store:
            pool = drop_near_duplicates(retrieve(QUESTION, RetrievePlan(k=50), store))
            stored = dict(store.cursor().execute("SELECT node_id, embedding FROM documents").fetchall())
            rows = np.array([stored[candidate.node_id] for candidate in pool])
            wanted = rerank(QUESTION, pool, vectors=rows, diversity=0.7, top_n=3)
            found = ask(store, diversity=0.7, plan=RetrievePlan(k=3))
            plain = ask(store, plan=RetrievePlan(k=3))
        assert [source["node_id"] for source in found.sources] == [candidate.node_id for candidate in wanted]
        assert [source["score"] for source in found.sources] == [candidate.score for candidate in wanted]
        assert names(found) != names(plain)
        assert {source["score_type"] for source in found.sources} == {"mmr"}

    @pytest.mark.slow
    def test_none_and_zero_leave_it_out(self, kb):
        plain = ask(kb)
        for diversity in (None, 0, 0.0):
            found = ask(kb, diversity=diversity)
            assert found.sources == plain.sources
            assert "rerank" not in found.timings


class TestCompress:
    def test_sentences_with_their_offsets(self, kb):
        found = ask(kb, compress=True)
        source = next(source for source in found.sources if source["doc_id"] == "long.txt")
        assert "The red valve is opened by hand." in source["quote"]
        assert "Birds" not in source["quote"]
        assert "\n…\n" in source["quote"] or len(source["spans"]) == 1
        assert source["quote"] == "\n…\n".join(LONG[start:end] for start, end in source["spans"])
        assert source["checksum"]
        assert found.timings["compress"] > 0

    def test_a_policy_after_the_new_order(self, kb):
        policy = CompressPolicy(sentences=1, window=0, max_chars=60)
        found = ask(kb, rerank=lambda _, texts: [len(t) for t in texts], compress=policy, plan=RetrievePlan(k=2))
        assert found.sources[0]["quote"] == "The red valve is opened by hand."
        assert names(found)[0] == "long.txt"
        assert found.sources[0]["score"] == len(LONG.strip())

    def test_the_stemmer_is_that_of_the_file(self, tmp_path):
        german = "Es war Winter. Niemand kam. Die Ventile werden zuerst geöffnet. Danach schneite es. Alle schliefen.\n"
        kb = build(tmp_path, options={"stemmer": "german"}, v_txt=german)
        found = ask(kb, question="Ventils", compress=True, plan=RetrievePlan(mode="lexical"))
        # By porter's rules no sentence would have a word of the question, and all of it would stay.
        assert found.sources[0]["quote"] == "Niemand kam. Die Ventile werden zuerst geöffnet. Danach schneite es."

    def test_neighbours_come_from_the_file(self, tmp_path):
        text = "# One\n\nThe pump is here.\n\n# Two\n\nThe red valve opens it.\n"
        kb = build(tmp_path, p_md=text)
        plan = RetrievePlan(mode="lexical", k=1)
        found = ask(kb, question="pump", compress=CompressPolicy(neighbours=1, window=9), plan=plan)
        assert "red valve" in found.sources[0]["quote"]
        with pytest.raises(InputError, match="neighbours are read from a store"):
            ask(None, contexts=[Candidate("a", 0, "text")], compress=CompressPolicy(neighbours=1))


class TestContexts:
    def test_stages_only_where_asked_for(self, kb):
        rows = hybrid_query(QUESTION, kb, top_k=6)
        given = [row for row in rows if row["doc_id"] != "b.txt"][::-1]
        plain = ask(kb, contexts=given, plan=RetrievePlan(k=1))
        assert [source["node_id"] for source in plain.sources] == [row["node_id"] for row in given]
        assert not {"rerank", "compress"} & plain.timings.keys()
        found = ask(kb, contexts=given, rerank=by_cat, compress=True)
        assert names(found)[0] == "e.txt"
        assert len(found.sources) == len(given)
        assert found.sources[0]["checksum"] == next(s for s in plain.sources if s["doc_id"] == "e.txt")["checksum"]

    def test_without_a_file(self):
        given = [Candidate("a", 0, "a dog", 0.9), Candidate("b", 0, "a cat", 0.8)]
        assert names(ask(None, contexts=given, rerank=by_cat)) == ["b", "a"]
        for more in ({"rerank": "cosine"}, {"diversity": 0.5}):
            with pytest.raises(InputError, match="need the vectors of a store: pass db_path"):
                ask(None, contexts=given, **more)

    @pytest.mark.slow
    def test_what_is_no_result_cannot_be_reordered(self, kb):
        compressed = {"doc_id": "a", "chunk_index": 0, "score": 1.0, "text": "x", "spans": [{"start": 0, "end": 1}]}
        for context in ({"text": "by hand"}, compressed):
            assert len(ask(kb, contexts=[context]).sources) == 1
            for more in ({"rerank": by_cat}, {"compress": True}, {"diversity": 0.5}):
                with pytest.raises(InputError, match="must be candidates, or results of a query"):
                    ask(kb, contexts=[context], **more)


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"rerank": 7}, "rerank must be"),
            ({"rerank": " "}, "rerank must be"),
            ({"diversity": 1.5}, "diversity must be a number from 0 to 1"),
            ({"diversity": True}, "diversity must be"),
            ({"compress": "yes"}, "compress must be True or False"),
            ({"compress": CompressPolicy(sentences=0)}, "sentences must be"),
            ({"plan": RetrievePlan(k=0)}, "k must be"),
            ({"plan": RetrievePlan(candidate_pool="x")}, "candidate_pool must be"),
        ],
        ids=str,
    )
    def test_wrong_ones(self, kb, arguments, says):
        with pytest.raises(InputError, match=says):
            ask(kb, **arguments)
        with pytest.raises(InputError, match=says):
            prepare_prompt(QUESTION, kb, **arguments)

    def test_the_prompt_goes_the_same_way(self, kb):
        server = ChatServer("It is [1].")
        given = {"rerank": by_cat, "diversity": 0.2, "compress": True, "plan": RetrievePlan(k=3)}
        found = ask(kb, server, **given)
        prompt, notices = prepare_prompt(QUESTION, kb, **given)
        assert prompt.messages == server.requests[0]["messages"]
        assert (prompt.sources, notices) == (found.sources, found.notices)

    def test_a_store_of_another_engine(self):
        class Elsewhere:
            def retrieve(self, query, plan, *, query_vector=None):
                text = "Snow fell. The cat sat."
                return Candidates([Candidate("a", 0, "a dog", 2.0), Candidate("b", 0, text, 1.0, i_start=0, i_end=23)])

        found = ask(Elsewhere(), question="cat", rerank=by_cat, compress=CompressPolicy(window=0))
        assert [source["quote"] for source in found.sources] == ["The cat sat.", "a dog"]

    def test_the_log_has_no_text(self, kb, caplog):
        with caplog.at_level(logging.DEBUG, logger="sqlrag"):
            ask(kb, rerank=by_cat, compress=True)
        assert QUESTION not in caplog.text
        assert "opened first" not in caplog.text


class TestCommand:
    @staticmethod
    def prompt(kb, *options):
        done = CliRunner().invoke(app, ["prompt", QUESTION, "--db", str(kb), "--format", "json", *options])
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    def test_the_options_reach_the_stages(self, kb):
        given = {"plan": RetrievePlan(mode="lexical", k=3), "rerank": "cosine", "diversity": 0.3, "compress": True}
        options = ["--mode", "lexical", "--top-k", "3", "--rerank", "cosine", "--diversity", "0.3", "--compress"]
        wanted, _ = prepare_prompt(QUESTION, kb, **given)
        assert self.prompt(kb, *options)["sources"] == wanted.sources
        assert {source["score_type"] for source in wanted.sources} == {"mmr"}
        server = ChatServer("It is [1].")
        with serving(server) as url:
            done = CliRunner().invoke(
                app, ["ask", QUESTION, "--db", str(kb), "--chat-model", "m", "--base-url", url, "-f", "json", *options]
            )
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["sources"] == wanted.sources

    @pytest.mark.parametrize(
        ("mode", "score_type"), [("hybrid", "adaptive"), ("vector", "vector"), ("lexical", "bm25")]
    )
    def test_the_mode(self, kb, mode, score_type):
        sources = self.prompt(kb, "--mode", mode)["sources"]
        assert {source["score_type"] for source in sources} == {score_type}

    def test_wrong_ones(self, kb):
        assert CliRunner().invoke(app, ["prompt", "x", "--db", str(kb), "--mode", "both"]).exit_code == 2
        done = CliRunner().invoke(app, ["prompt", "x", "--db", str(kb), "--diversity", "2"])
        assert (done.exit_code, "--diversity must be a number from 0 to 1" in done.stderr) == (2, True)

    def test_a_model_that_cannot_be_had_is_told(self, kb, monkeypatch):
        monkeypatch.setattr(rerank, "_load", _not_there)
        done = CliRunner().invoke(app, ["prompt", QUESTION, "--db", str(kb), "--rerank", "some/model"])
        assert done.exit_code == 0
        assert "note: Not reranked, the order is unchanged: The cross-encoder 'some/model' cannot be" in done.stderr
