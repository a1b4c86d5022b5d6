"""The search page in a browser, over ``sqlrag serve``: what it shows, its keys, its address, and what fails."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import uvicorn

import sqlrag
from sqlrag.adapters.rest import create_app, pages
from sqlrag.adapters.rest.config import ServerOptions
from sqlrag.embedders import weights
from sqlrag.explore.map import corpus_map
from sqlrag.network import listen
from tests.support.chat_server import ChatServer, serving
from tests.support.handbook import HANDBOOK
from tests.support.helpers import MINILM, ROOT, build
from tests.support.loopback import served

sync = pytest.importorskip("playwright.sync_api", reason="needs playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
expect = sync.expect
expect.set_options(timeout=15_000)  # a busy machine is no fault

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PAGE = ROOT / "sqlrag" / "adapters" / "rest" / "page"
QUESTION = "How do I filter by tag?"
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
PAGES = ("guides/filters.md", "guides/collections-and-tags.md", "guides/lexical-search.md", "faq.md", "glossary.md")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (the package chromium of Debian)"),
    pytest.mark.model,
    pytest.mark.skipif(not weights.bundle_is_installed(), reason="needs the [offline] extra"),
]

ODD = {
    "script_md": (
        "# <script>alert(1)</script>\n\nA zebra <script>window.taken = 1</script>"
        "<img src=x onerror='window.taken=2'> &amp;"
    ),
    "emoji_md": "# Animals 🦓\n\n🦓🦓🦓 intro 👩‍👩‍👧 text.\n\n## Stripes\n\n🦓 The zebra 🦓 has stripes, zebras 𝒛 do.",
    "rtl_md": "# חיות\n\nהזברה zebra היא חיה עם פסים.",
    "long_md": "# " + "zebra" * 60 + "\n\nzebra " + "x" * 3000 + " https://example.org/" + "path/" * 200,
    "table_txt": "zebra\t" + "| cell " * 100,
    "list_md": "---\ntitle: [a, {b: c}]\n---\nA zebra in a list.",
    "blank_md": "---\ntitle: ' \u200b '\n---\nA zebra in the blank.",
    "titled_md": "---\ntitle: Of zebras\n---\nA zebra with a title.",
}  # fmt: skip
BIG = "\n\n".join(f"Line {number} 🦊 of a long text that goes on and on." for number in range(2000))
FLAT = " ".join(f"word{number % 97} 🦊" for number in range(12_000))


@contextlib.contextmanager
def serve(path, *arguments, **environment):
    """Run ``sqlrag serve`` and yield its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sqlrag", "serve", str(path), "--port", "0", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address or process.stderr.read()
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=20)


@contextlib.contextmanager
def server(path, port=0, **options):
    """Serve a file from a thread of this process, which starts at once, and yield its address."""
    listening, url = listen("127.0.0.1", port, backlog=64)
    app = create_app(path, ServerOptions(**options))
    running = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not running.started and thread.is_alive():
            time.sleep(0.01)
        yield f"{url}/"
    finally:
        running.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="module")
def handbook(tmp_path_factory):
    """Return some pages of the handbook as a search file with a map, by the real model."""
    folder = tmp_path_factory.mktemp("handbook")
    for name in PAGES:
        (folder / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HANDBOOK / name, folder / "docs" / name)
    path = sqlrag.prepare_embeddings(
        folder / "docs", folder / "kb.duckdb", 200, embed_model_name=MINILM, verbose=False
    ).path
    corpus_map(path)
    return path


@pytest.fixture(scope="module")
def chat():
    return ChatServer(
        "Use **tags_any** [1] or tags_all [2, 99]; `code [1]` is none."
        " <img src=x onerror='window.taken=1'>\n\n- one [2]"
    )


@pytest.fixture(scope="module")
def address(handbook, chat):
    with (
        serving(chat) as base_url,
        serve(
            handbook, "--chat-model", "small", "--chat-base-url", base_url, OPENAI_API_KEY="none", SQLRAG_API_KEY=""
        ) as address,
    ):
        yield address


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    long = {"big_txt": f"{BIG}\n\nAn okapi.\n\n{BIG}", "flat_txt": f"{FLAT} A quagga. {FLAT}"}
    path = build(tmp_path_factory.mktemp("odd"), **ODD, **long)
    with server(path) as address:
        yield address, path


@pytest.fixture(scope="module")
def browser():
    # No name is looked up, so that nothing can leave this machine.
    options = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", *["--no-sandbox"] * (os.geteuid() == 0)]
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


class Visit:
    """Opens pages in fresh contexts, and keeps what went wrong in them and what they asked other machines for."""

    def __init__(self, browser):
        self.browser = browser
        self.contexts = []
        self.faults = []
        self.failing = False  # whether requests that fail are meant to

    def __call__(self, url, viewport=WIDE, scheme="light"):
        context = self.browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
        self.contexts.append(context)
        context.set_default_timeout(15_000)
        context.on("request", self.guard)
        page = context.new_page()
        page.on("console", lambda message: message.type in ("error", "warning") and self.took(message.text))
        page.on("pageerror", lambda error: self.took(str(error)))
        page.on("dialog", lambda dialog: (self.took(f"dialog {dialog.message}"), dialog.dismiss()))
        page.goto(url)
        return page

    def guard(self, request):
        if not re.match(r"((?:blob:)?http://127\.0\.0\.1:\d+/|data:)", request.url):
            self.took(f"left this machine: {request.url}")

    def took(self, fault):
        if not (self.failing and fault.startswith("Failed to load resource")):
            self.faults.append(fault)


@pytest.fixture
def visit(browser):
    visit = Visit(browser)
    yield visit
    for context in visit.contexts:
        context.close()
    assert visit.faults == []


def ask(page, question, mode=None):
    if mode:
        page.get_by_label(mode, exact=True).check()
    page.fill("#query", question)
    page.keyboard.press("Enter")


def nodes(page):
    return [link.get_attribute("data-node") for link in page.locator("#list .open").all()]


def focused(page):
    return page.locator(":focus")


def test_results_are_those_of_python(visit, address, handbook):
    page = visit(address)
    expect(page.locator("#corpus")).to_contain_text("kb.duckdb · 5 documents")
    expect(page.locator("#query")).to_be_focused()
    ask(page, QUESTION)
    expected = sqlrag.hybrid_query(QUESTION, handbook, top_k=10, per_document=2)
    expect(page.get_by_role("status").filter(has_text="results for")).to_have_text(f"10 results for “{QUESTION}”")
    assert nodes(page) == [row["node_id"] for row in expected]
    first = page.locator("#list li").first
    row = expected[0]
    titles = list(dict.fromkeys([row["heading_path"][0], row["heading_path"][-1]]))
    expect(first.locator("h3 a")).to_have_text(" › ".join(titles))
    with sqlrag.Store(handbook) as store:
        snippets = store.snippets(QUESTION, [row["node_id"] for row in expected])
    shown = page.locator("#list .excerpt").all_text_contents()
    assert shown == [text for text, _ in snippets]
    marked = [text[start:end] for text, spans in snippets for start, end in spans]
    assert page.locator("#list .excerpt mark.term").all_text_contents() == marked
    expect(first.locator(".path")).to_have_text(row["doc_id"])
    expect(first.locator(".leg.vector")).to_contain_text(f"#{row['vector_rank']} cosine {row['vector_score']:.3f}")
    expect(first.locator(".leg.lexical")).to_contain_text(f"#{row['lexical_rank']} BM25 {row['lexical_score']:.2f}")
    assert {text.lower() for text in page.locator("mark.term").all_text_contents()} <= {
        "filter", "filters", "filtered", "filtering", "tag", "tags",
    }  # fmt: skip
    expect(page.locator("#timings")).to_have_text(re.compile(r"Found in [\d.]+ ms \(.*lexical [\d.]+ ms.*\)"))


@pytest.mark.parametrize(("mode", "function"), [("Meaning", sqlrag.vector_query), ("Words", sqlrag.lexical_query)])
def test_modes_and_filters(visit, address, handbook, mode, function):
    page = visit(address)
    ask(page, "tag*", mode)
    expect(page.locator("#list li").first).to_be_visible()
    assert nodes(page) == [row["node_id"] for row in function("tag*", handbook, top_k=10, per_document=2)]
    page.locator("#tags summary").click()
    page.locator("#tags").get_by_text("search", exact=True).click()
    expect(page).to_have_url(re.compile(r"tag=search"))
    wanted = [row["node_id"] for row in function("tag*", handbook, top_k=10, per_document=2, tags_any=["search"])]
    expect(page.locator("#list li")).to_have_count(len(wanted))
    expect(page.locator("#list .open").first).to_have_attribute("data-node", wanted[0])
    page.keyboard.press("Escape")
    expect(page.locator("#tags[open]")).to_have_count(0)
    page.click("#clear")
    expect(page.locator("#list .open")).not_to_have_count(0)
    assert "tag=" not in page.url


def test_fault_U11_words_of_titles_are_marked_and_each_title_has_its_own_direction(visit, odd):
    address, _ = odd
    page = visit(f"{address}?q=חיות+zebra&mode=words")
    title = page.locator("#list .open[data-node='rtl.md#0'] bdi")
    expect(title).to_have_text("חיות")
    expect(title.locator("mark.term")).to_have_text("חיות")
    place = page.locator("#list li").filter(has=page.locator("[data-node='rtl.md#0']")).locator(".place bdi")
    expect(place).to_have_text("rtl.md")
    page.goto(f"{address}?q=stripes+animals&mode=words")
    parts = page.locator("#list .open").filter(has_text="Stripes").first.locator("bdi")
    expect(parts).to_have_text(["Animals 🦓", "Stripes"])
    assert parts.locator("mark.term").all_text_contents() == ["Animals", "Stripes"]


def test_fault_U11_nonsense_is_told_from_a_question(visit, address):
    page = visit(f"{address}?q=zzzqqq+xkcdv+wumpus")
    expect(page.locator("#list li")).not_to_have_count(0)
    expect(page.locator("#notices")).to_contain_text("Probably nothing relevant")
    ask(page, QUESTION)
    expect(page.locator("#status")).to_contain_text(QUESTION)
    expect(page.locator("#notices")).not_to_contain_text("Probably nothing relevant")


def test_there_is_more_around_a_passage(visit, address, handbook):
    page = visit(f"{address}?q={QUESTION}")
    rows = sqlrag.hybrid_query(QUESTION, handbook, top_k=10, per_document=2, context="neighbours")
    item = page.locator("#list li").first
    expect(item.locator("mark.passage")).to_be_hidden()
    item.get_by_text("More around it").click()
    expect(item.locator("mark.passage")).to_be_visible()

    def words(text):
        return text.replace("\xad", "").split()

    assert len(rows[0]["context"]) > len(rows[0]["text"])
    assert words(item.locator(".around").text_content()) == words(rows[0]["context_shown"])
    assert words(item.locator("mark.passage").text_content()) == words(rows[0]["shown"][: len(rows[0]["text"])])


def test_more_results(visit, address):
    page = visit(f"{address}?q=the+file")
    expect(page.locator("#list li")).to_have_count(10)
    page.click("#more")
    expect(page.locator("#list li")).to_have_count(20)
    assert "k=20" in page.url


def test_nothing_is_found(visit, address):
    page = visit(f"{address}?q=quetzalcoatl&mode=words&tag=search")
    expect(page.locator("#status")).to_have_text("Nothing was found. Choose fewer filters.")


def test_by_keyboard(visit, address):
    page = visit(address)
    page.locator("#close").evaluate("() => document.activeElement.blur()")
    page.keyboard.press("/")
    expect(page.locator("#query")).to_be_focused()
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    links = page.locator("#list .open")
    expect(links).to_have_count(10)
    page.keyboard.press("ArrowDown")
    expect(links.nth(0)).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("k")
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#source mark.passage").first).to_be_in_viewport()
    expect(page.locator("#source-title")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#source")).to_be_hidden()
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#query")).to_be_focused()


def test_the_help_is_there_beside_results(visit, address):
    page = visit(address)
    intro, button = page.locator("#intro"), page.get_by_role("button", name="Help")
    expect(intro).to_contain_text("↓ ↑, or j k outside of the box")
    ask(page, "collection")
    expect(page.locator("#list li")).not_to_have_count(0)
    expect(intro).to_be_hidden()
    page.keyboard.press("?")  # in the box it is a character
    expect(page.locator("#query")).to_have_value("collection?")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("?")
    expect(intro).to_be_focused()
    expect(button).to_have_attribute("aria-expanded", "true")
    button.click()
    expect(intro).to_be_hidden()


def test_the_list_stays_where_it_is_when_a_source_opens(visit, address):
    page = visit(f"{address}?q={QUESTION}", {"width": 1280, "height": 500})
    link = page.locator("#list .open").nth(5)
    link.scroll_into_view_if_needed()
    link.click()
    expect(page.locator("#source mark.passage").first).to_be_in_viewport()
    header = page.locator(".top").bounding_box()
    assert link.bounding_box()["y"] >= header["y"] + header["height"]


def visible_words(text):
    """Return the words of what a reader of the page sees of a text, without the marks of Markdown that stay in it."""
    words = re.sub(r"[|*_`#>\\]|^\s*(?:-|\d+\.)\s", " ", text.replace("\xad", ""), flags=re.M)
    return re.findall(r"\w+", words)


def test_a_source_is_marked_and_in_view(visit, address, handbook):
    row = sqlrag.hybrid_query(QUESTION, handbook, top_k=10, per_document=2)[4]
    page = visit(f"{address}?q={QUESTION}")
    for viewport in (WIDE, NARROW):
        page.set_viewport_size(viewport)
        page.locator("#list .open").nth(4).click()
        marks = page.locator("#source mark.passage")
        expect(marks.first).to_be_in_viewport()
        assert visible_words(" ".join(marks.all_text_contents())) == visible_words(row["shown"])
        page.get_by_role("button", name="As written").click()
        expect(marks).to_have_count(1)
        expect(marks).to_be_in_viewport()
        assert marks.text_content() == row["text"]
        with sqlrag.Store(handbook) as store:
            text = store.sources([row["doc_id"]])[row["doc_id"]]["text"]
        assert page.locator("#source-text").text_content() == text
        page.get_by_role("button", name="As written").click()
        expect(page.locator("#source .rendered").first).to_be_visible()
        page.click("#close")
        expect(page.locator("#list .open").nth(4)).to_be_focused()


def test_back_and_forward(visit, address):
    page = visit(address)
    ask(page, "stop words")
    expect(page.locator("#status")).to_contain_text("stop words")
    first = nodes(page)
    page.locator("#list .open").first.click()
    expect(page.locator("#source mark.passage").first).to_be_visible()
    page.get_by_label("Words", exact=True).check()
    expect(page).to_have_url(re.compile("mode=words$"))
    ask(page, "collection")
    expect(page.locator("#status")).to_contain_text("“collection”")
    page.go_back()
    expect(page.locator("#status")).to_contain_text("stop words")
    expect(page.locator("#query")).to_have_value("stop words")
    page.go_back()
    expect(page.locator("#source mark.passage").first).to_be_visible()
    assert page.get_by_label("Both", exact=True).is_checked()
    page.go_back()
    expect(page.locator("#source")).to_be_hidden()
    assert nodes(page) == first
    page.go_back()
    expect(page.locator("#intro")).to_be_visible()
    page.go_forward()
    page.go_forward()
    expect(page.locator("#source mark.passage").first).to_be_visible()


def test_a_link_shows_the_same(visit, address):
    page = visit(f"{address}?q={QUESTION}&tag=search&mode=words")
    page.locator("#list .open").nth(1).click()
    expect(page.locator("#source mark.passage").first).to_be_visible()
    other = visit(page.url)
    expect(other.locator("#source mark.passage").first).to_be_in_viewport()
    marks = other.locator("#source mark.passage").all_text_contents()
    assert marks == page.locator("#source mark.passage").all_text_contents()
    assert nodes(other) == nodes(page)
    assert other.get_by_label("Words", exact=True).is_checked()
    other.goto(f"{address}?source=faq.md%232")  # of no search
    expect(other.locator("#source mark.passage").first).to_be_in_viewport()


@pytest.mark.rest
def test_what_documents_hold_is_text(visit, odd):
    address, path = odd
    page = visit(f"{address}?q=zebra&mode=words")
    rows = {row["node_id"]: row for row in sqlrag.lexical_query("zebra", path, top_k=10)}
    expect(page.locator("#list li")).to_have_count(len(rows))
    for viewport in (WIDE, NARROW):
        page.set_viewport_size(viewport)
        for node, row in rows.items():
            page.locator(f"#list .open[data-node='{node}']").click()
            expect(page.locator("#source mark.passage").first).to_be_in_viewport()
            assert not page.locator("#source-text").get_by_text("window.taken").count()
            assert page.locator("#source script, #source img").count() == 0
            if page.locator("#written").is_visible():
                page.click("#written")
            passage = page.locator("#source mark.passage")
            expect(passage).to_have_count(1)
            assert passage.text_content() == row["text"]
            assert page.locator("#source mark.passage mark.term").all_text_contents() == [
                row["text"][start:end] for start, end in sqlrag.highlight("zebra", [row["text"]], path)[0]
            ]
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            if page.locator("#written").is_visible():
                page.click("#written")
            page.click("#close")
        assert not page.locator("#list").get_by_text("window.taken").count()
        assert page.evaluate("window.taken") is None
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("#list script, #list img, #source script, #source img").count() == 0


def test_a_long_document_opens_at_its_passage(visit, odd):
    address, path = odd
    page = visit(f"{address}?q=okapi&mode=words")
    (row,) = sqlrag.lexical_query("okapi", path, include_source_docs=True)
    page.locator("#list .open").click()
    expect(page.locator("#source mark.passage mark.term")).to_have_text("okapi")
    expect(page.locator("#source mark.passage").first).to_be_in_viewport()
    assert page.locator("#source mark.passage").text_content() == row["text"]
    assert page.locator("#source-text").text_content() == row["source_doc"]["text"]


def test_a_text_without_lines_is_laid_out_in_parts(visit, odd):
    address, path = odd
    page = visit(f"{address}?q=quagga&mode=words")
    row = sqlrag.lexical_query("quagga", path, include_source_docs=True)[0]
    page.locator("#list .open").first.click()
    passage = page.locator("#source mark.passage")
    expect(passage).to_be_in_viewport()
    assert passage.text_content() == row["text"]
    assert page.locator("#source-text").text_content() == row["source_doc"]["text"]
    assert max(map(len, page.locator(".part").all_text_contents())) <= 16_000


@pytest.mark.parametrize(
    ("name", "title", "place", "source"),
    [
        ("table.txt", "table", "table.txt", ("table.txt", "")),
        ("list.md", "list", "list.md", ("list.md", "")),
        ("blank.md", "blank.md", "", ("blank.md", "")),
        ("titled.md", "Of zebras", "titled.md", ("Of zebras", "titled.md")),
    ],
)
def test_a_title_is_text_that_can_be_seen_and_is_said_once(visit, odd, name, title, place, source):
    page = visit(f"{odd[0]}?q=zebra&mode=words&source={name}%230")
    item = page.locator("#list li").filter(has=page.locator(f".open[data-node='{name}#0']"))
    expect(item.locator("h3 a")).to_have_text(title)
    expect(item.locator(".place")).to_have_text(place)
    expect(page.locator("#source-text")).to_contain_text("zebra")
    expect(page.locator("#source-title")).to_have_text(source[0])
    expect(page.locator("#source-place")).to_have_text(source[1])


def test_the_other_files_of_the_server_can_be_chosen(visit, odd, tmp_path):
    other = build(tmp_path, a_md="# Okapis\n\nThe okapi has stripes as a zebra has.")
    with server({"odd": odd[1], "okapis": other}) as address:
        page = visit(address)
        ask(page, "zebra", "Words")
        expect(page.locator("#list li").first).to_be_visible()
        expect(page.locator("#files option:checked")).to_have_text("odd")
        assert violations(page) == []
        page.get_by_label("The file").select_option("okapis")
        page.wait_for_url(f"{address}db/okapis/?q=zebra&mode=words")
        expect(page.locator("#list .open")).to_have_text("Okapis")
        expect(page.locator("#files option:checked")).to_have_text("okapis")
        page.go_back()
        expect(page.locator("#files option:checked")).to_have_text("odd")
        expect(page.locator("#list li").first).to_be_visible()  # nothing is asked for any more when the server ends


def test_the_page_allows_no_script_but_its_own(visit, address):
    page = visit(address)
    policy = page.request.get(address).headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert page.request.get(f"{address}page/main.js").headers["content-type"].startswith("text/javascript")


def test_fault_U3_the_routes_are_described_and_can_be_tried_out_without_network(visit, address):
    page = visit(f"{address}docs")
    operation = page.locator("#operations-default-retrieve")
    operation.locator("button.opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table .response-col_status").last).to_have_text("200")
    expect(operation.locator(".live-responses-table")).to_contain_text("guides/filters.md")
    routes = page.request.get(f"{address}openapi.json").json()["paths"]
    expect(page.locator(".opblock")).to_have_count(sum(len(methods) for methods in routes.values()))


def test_fault_U3_the_routes_ask_for_the_key_once(browser, odd):
    key, asked = "a-key-that-nobody-guesses", []
    with server(odd[1], api_key=key) as address, browser.new_context() as context:
        page = context.new_page()
        page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept(("wrong", key)[len(asked) - 1])))
        page.goto(f"{address}docs")
        page.locator("#operations-default-facets button.opblock-summary-control").click()
        page.get_by_role("button", name="Try it out").click()
        page.get_by_role("button", name="Execute").click()
        expect(page.locator(".live-responses-table")).to_contain_text("kb.duckdb")
    assert asked == ["The key of this server:", "The server refused this key. Another one:"]


@pytest.mark.parametrize("named", [True, False])
def test_fault_U2_a_page_of_another_origin_reads_and_writes_only_where_it_is_named(visit, odd, tmp_path, named):
    path, key = shutil.copy(odd[1], tmp_path / "kb.duckdb"), "a-key-that-nobody-guesses"
    ask_and_upload = """async ([address, key]) => {
        const headers = { Authorization: `Bearer ${key}`, "X-Request-ID": "of-the-app" };
        const body = JSON.stringify({ query_text: "zebra", top_k: 1 });
        const json = { ...headers, "Content-Type": "application/json" };
        const found = await fetch(`${address}lexical_query`, { method: "POST", body, headers: json });
        const form = new FormData();
        form.append("files", new Blob(["# New"]), "new.md");
        const stored = await fetch(`${address}documents`, { method: "POST", body: form, headers });
        return [(await found.json()).results.length, found.headers.get("x-request-id"), (await stored.json()).added];
    }"""
    visit.failing = True

    class App(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

    with served(App, threading.Event()) as app:
        page = visit(app)
        cors = (app if named else "http://127.0.0.1:1",)
        with server(path, cors=cors, api_key=key, write=True) as address:
            if named:
                assert page.evaluate(ask_and_upload, [address, key]) == [1, "of-the-app", ["new.md"]]
            else:
                with pytest.raises(sync.Error, match="Failed to fetch"):
                    page.evaluate(ask_and_upload, [address, key])
                visit.faults.clear()  # Chromium's message about CORS
            listed = page.request.get(f"{address}documents?limit=100", headers={"X-API-Key": key}).text()
    assert ('"new.md"' in listed) is named


def test_its_files_name_no_other_address():
    for file in filter(Path.is_file, PAGE.iterdir()):
        text = file.read_text("utf-8").replace("xmlns='http://www.w3.org/2000/svg'", "")
        assert not re.search(r"https?:|//\w+\.|innerHTML|insertAdjacent|document\.write|eval\(", text), file.name


def test_the_files_of_others_are_the_published_ones():
    told = (PAGE / "vendor" / "README.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| `([\w.-]+\.js)` .* `([0-9a-f]{64})` \|$", told, re.M))
    assert listed == {file.name: sha256(file.read_bytes()).hexdigest() for file in (PAGE / "vendor").glob("*.js")}
    for licence in re.findall(r"`(LICENSE-[\w.-]+)`", told):
        assert (PAGE / "vendor" / licence).is_file()


ACTING = """# Of okapis

An okapi <script>window.taken = 1</script> <img src="http://127.0.0.1:1/x.png" onerror="window.taken = 2"> [tame]

![an okapi in a picture](http://127.0.0.1:1/picture.png) <a href="javascript:window.taken=3">okapi by script</a>
<b onclick="window.taken = 4" style="position: fixed" id="list" class="open" data-node="x#0">bold okapi</b>
[by the web](https://example.org/okapi) [by script](javascript:alert(1)) [by data](data:text/html,x) [here](other.md)

<iframe src="http://127.0.0.1:1/"></iframe><form action="http://127.0.0.1:1/"><input><button>Send</button></form>
<svg onload="window.taken = 5"><script>window.taken = 6</script></svg><style>body { display: none }</style>
<math><mtext><table><mglyph><style><img src=x onerror="window.taken = 7"></style></mglyph></table></mtext></math>

### Numbers

| okapi | number |
|:------|-------:|
| one   |      1 |

```js
okapi("<b>not bold</b>");
```
"""


def test_markdown_is_rendered_and_does_nothing(visit, tmp_path):
    path = build(tmp_path, okapi_md=ACTING)
    with server(path) as address:
        page = visit(f"{address}?q=okapi&mode=words&source=okapi.md%230")
        text = page.locator("#source-text")
        expect(text.locator("mark.term")).not_to_have_count(0)
        assert text.locator("script, img, iframe, form, input, button, svg, math, style, link, object").count() == 0
        assert (
            text.evaluate("""(root) => [...root.querySelectorAll("*")].flatMap((one) => one.getAttributeNames())
            .filter((name) => /^on|style|^id$|^src|data-node/.test(name))""")
            == []
        )
        assert [link.get_attribute("href") for link in text.locator("a").all()] == [
            *(None,), "https://example.org/okapi", None,
        ]  # fmt: skip
        outward = text.get_by_role("link")
        assert (outward.get_attribute("rel"), outward.get_attribute("target")) == (
            "noopener noreferrer nofollow",
            "_blank",
        )
        assert text.locator("h3, h4").all_text_contents() == ["Of okapis", "Numbers"]
        assert text.locator("pre code").text_content() == 'okapi("<b>not bold</b>");\n'
        aligned = "cells => cells.map((cell) => getComputedStyle(cell).textAlign.replace('-webkit-', ''))"
        assert text.locator("td").evaluate_all(aligned) == ["left", "right"]
        expect(text).to_contain_text("an okapi in a picture")
        assert page.evaluate("window.taken") is None
        assert violations(page) == []
        page.get_by_role("button", name="As written").click()
        assert text.text_content() == ACTING


def test_a_passage_within_a_paragraph_is_marked_alone(visit, tmp_path):
    sentences = [f"Sentence {n} is of [okapis](okapis.md) and **zebras**, number {n}." for n in range(40)]
    path = build(tmp_path, long_md="# Long\n\n" + " ".join(sentences), options={"chunk_size": 60, "chunk_overlap": 0})
    with server(path) as address, sqlrag.Store(path) as store:
        chunks = store.cursor().execute("SELECT node_id, text, shown FROM documents ORDER BY chunk_index").fetchall()
        assert len(chunks) > 3
        for node, text, shown in (chunks[1], chunks[-1]):
            page = visit(f"{address}?source={node.replace('#', '%23')}")
            marks = page.locator("#source mark.passage")
            expect(marks.first).to_be_in_viewport()
            expect(page.locator("#corpus")).to_contain_text("1 document")
            assert visible_words(" ".join(marks.all_text_contents())) == visible_words(shown or text)


DROP = """([name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name, { type: "text/markdown" }));
    for (const kind of ["dragover", "drop"]) {
        document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
    }
}"""


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["1280", "390"])
def test_documents_are_added_and_their_originals_offered(visit, tmp_path, viewport):
    path = build(tmp_path, old_md="# Old\n\nA zebra.")
    with server(path, write=True, keep_originals=True) as address:
        page = visit(f"{address}?q=okapi&mode=words", viewport)
        expect(page.locator("#status")).to_contain_text("Nothing was found")
        expect(page.get_by_role("button", name="Add", exact=True)).to_be_visible()  # it is known that it may write
        page.evaluate(DROP, ["okapi.md", "# Okapi\r\n\r\nAn okapi has stripes."])
        report = page.get_by_role("list", name="What became of the documents")
        expect(report.get_by_role("listitem")).to_have_text(["Added: okapi.md"])
        expect(page.locator("#upload-state")).to_have_text("1 document stored, 1 chunk.")
        expect(page.locator("#list .open")).to_have_text("Okapi")
        expect(page.locator("#corpus")).to_contain_text("2 documents")
        files = [
            {"name": "old.md", "mimeType": "", "buffer": b"# Old\n\nA quagga."},
            {"name": "no.pdf", "mimeType": "", "buffer": b"okapi"},
        ]
        page.get_by_label("Drop files anywhere").set_input_files(files)
        expect(report.get_by_role("listitem")).to_have_count(2)
        expect(report).to_contain_text("Not used: no.pdf – ")
        expect(report).to_contain_text("Replaced: old.md")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert violations(page) == []
        page.locator("#list .open").click()
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Original").click()
        assert waiting.value.suggested_filename == "okapi.md"
        assert Path(waiting.value.path()).read_bytes() == b"# Okapi\r\n\r\nAn okapi has stripes."
        assert violations(page) == []
        page.click("#close")
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.locator("#upload")).to_be_hidden()


def test_nothing_can_be_added_to_a_file_that_is_read(visit, odd):
    page = visit(odd[0])
    expect(page.locator("#corpus")).to_contain_text("documents")
    expect(page.get_by_role("button", name="Add", exact=True)).to_have_count(0)
    page.evaluate(DROP, ["new.md", "# New"])
    expect(page.locator("#upload")).to_be_hidden()
    page.goto(f"{odd[0]}?source=titled.md%230")
    expect(page.locator("#source-text")).to_contain_text("zebra")
    expect(page.locator("#original")).to_be_hidden()


def test_a_server_that_is_gone_is_told_and_tried_again(visit, odd):
    _, path = odd
    visit.failing = True
    with server(path) as address:
        page = visit(address)
        expect(page.locator("#corpus")).to_contain_text("documents")
    ask(page, "zebra")
    expect(page.get_by_role("alert")).to_contain_text("The server does not respond. Is sqlrag serve still running")
    expect(page.locator("#results")).to_be_hidden()
    with server(path, port=int(address.rstrip("/").rpartition(":")[2])):
        page.get_by_role("button", name="Try again").click()
        expect(page.locator("#list li")).not_to_have_count(0)
    expect(page.get_by_role("alert")).to_be_empty()


@pytest.mark.parametrize(
    ("status", "detail", "says"),
    [
        (
            503,
            "kb.duckdb is used by process 7.",
            "busy, or the file is in use by another program. kb.duckdb is used by",
        ),
        (422, "top_k must be a whole number.", "The server refuses this search. top_k must be a whole number."),
        (504, "The request took longer than 30 seconds.", "Try again, with fewer words or with filters."),
        (418, "", "I'm a teapot"),
    ],
)
def test_failures_are_told_in_words(visit, odd, status, detail, says):
    visit.failing = True
    page = visit(odd[0])
    problem = {"title": "I'm a teapot", "status": status, "detail": detail}
    wait = {"Retry-After": "3"} if status == 503 else {}
    page.route("**/hybrid_query", lambda route: route.fulfill(status=status, json=problem, headers=wait))
    ask(page, "zebra")
    expect(page.get_by_role("alert")).to_contain_text(says)
    if status == 503:
        expect(page.get_by_role("alert")).to_contain_text("Try again in 3 s.")
    page.unroute("**/hybrid_query")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#list li")).not_to_have_count(0)


def test_an_older_answer_never_replaces_a_newer_one(visit, odd):
    page = visit(odd[0])
    held = []
    slow = lambda route: "slow" in route.request.post_data  # noqa: E731
    page.route("**/hybrid_query", lambda route: held.append(route) if slow(route) else route.continue_())
    with page.expect_request("**/hybrid_query"):
        ask(page, "slow zebra")
    ask(page, "stripes")
    expect(page.locator("#status")).to_contain_text("“stripes”")
    before = nodes(page)
    late = {"results": [], "notices": ["late"], "timings": {}, "methods": {}}
    with contextlib.suppress(sync.Error):  # the page has left it
        held[0].fulfill(json=late)
    expect(page.locator("#results[aria-busy]")).to_have_count(0)
    assert nodes(page) == before
    expect(page.locator("#notices")).to_be_empty()


def test_the_key(visit, odd):
    _, path = odd
    visit.failing = True
    with server(path, api_key="a-key-for-this-test") as address:
        page = visit(f"{address}?q=zebra")
        dialog = page.get_by_role("dialog", name="This server needs a key")
        expect(dialog).to_be_visible()
        expect(page.get_by_label("API key")).to_be_focused()
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("The server refuses this key.")
        page.keyboard.type("a-key-for-this-test")
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
        expect(page.locator("#list li")).not_to_have_count(0)
        page.reload()
        expect(page.locator("#list li")).not_to_have_count(0)
        other = visit(f"{address}?q=zebra")
        expect(other.get_by_role("dialog")).to_be_visible()
        other.keyboard.press("Escape")
        expect(other.get_by_role("alert")).to_contain_text("A key is needed.")
        assert "a-key" not in page.url


def test_an_answer_is_streamed_and_cites(visit, address, chat):
    page = visit(f"{address}?q={QUESTION}")
    page.get_by_role("button", name="Answer from these documents").click()
    text = page.locator("#answer-text")
    expect(page.locator("#answer-state")).to_contain_text("By small, from")
    said = "Use tags_any [1] or tags_all [2, 99]; code [1] is none. one [2]"
    expect(text).to_have_text(said)
    assert text.locator("strong, code, li").all_text_contents() == ["tags_any", "code [1]", "one [2]"]
    assert page.evaluate("window.taken") is None
    assert text.locator("a").all_text_contents() == ["1", "2", "2"]
    expect(page.locator("#answer-notices")).to_contain_text("99")
    expect(page.get_by_role("list", name="Sources that the answer cites").get_by_role("listitem")).to_have_count(2)
    others = page.locator("#answer-sources details")
    expect(others.get_by_role("link").first).to_be_hidden()
    others.get_by_text("that the answer does not cite").click()
    expect(others.get_by_role("link").first).to_be_visible()
    cite = text.get_by_role("link", name="Source 2").first
    cite.click()
    marks = page.locator("#source mark.passage")
    expect(marks.first).to_be_in_viewport()
    cited = marks.all_text_contents()
    same = visit(page.url)
    expect(same.locator("#source mark.passage").first).to_be_in_viewport()
    assert same.locator("#source mark.passage").all_text_contents() == cited
    page.keyboard.press("Escape")
    expect(cite).to_be_focused()
    expect(text).to_have_text(said)  # the answer is still there


def test_an_answer_that_fails_is_told_and_one_that_stalls_is_stopped(visit, address, chat):
    page = visit(f"{address}?q={QUESTION}")
    try:
        chat.faults = {"all": "ends early"}
        page.click("#ask")
        expect(page.locator("#answer-state")).to_contain_text("The answer is not complete")
        chat.faults = {"all": "stalls"}
        page.click("#ask")
        expect(page.locator("#answer-text")).to_contain_text("tags_any")
        page.click("#stop")
        expect(page.locator("#answer-state")).to_have_text("Stopped.")
        expect(page.locator("#stop")).to_be_hidden()
    finally:
        chat.faults = {}


def place_of(page, node):
    """Return where a chunk is on the canvas, from the places that the server gives."""
    data = page.evaluate("fetch('map').then((response) => response.json())")
    index = data["node_id"].index(node)
    box = page.locator("#map-canvas").bounding_box()
    part = {axis: (data[axis][index] - min(data[axis])) / (max(data[axis]) - min(data[axis])) for axis in "xy"}
    inner = {"x": box["width"] - 44, "y": box["height"] - 44}
    return {"x": 22 + part["x"] * inner["x"], "y": box["height"] - 22 - part["y"] * inner["y"]}


def test_the_map_tells_and_opens_points_and_marks_results(visit, address, handbook):
    page = visit(f"{address}?q={QUESTION}")
    expect(page.locator("#list li")).to_have_count(10)
    page.get_by_role("button", name="Map").click()
    with sqlrag.Store(handbook) as store:
        topics = store.cursor().execute("SELECT label, points FROM topics ORDER BY cluster").fetchall()
        (chunks,) = store.cursor().execute("SELECT count(*) FROM documents").fetchone()
    state = page.locator("#map-state")
    expect(state).to_have_text(f"{chunks} passages in {len(topics)} clusters. 10 results, 10 marked.")
    listed = page.get_by_role("list", name="Clusters of the map").get_by_role("button")
    assert listed.all_text_contents() == [f"{label} {points}" for label, points in topics]
    row = sqlrag.hybrid_query(QUESTION, handbook, top_k=1)[0]
    canvas, told = page.locator("#map-canvas"), page.locator("#map-point")
    canvas.hover(position=place_of(page, row["node_id"]))
    expect(told).to_contain_text(row["heading_path"][-1])
    expect(told).to_contain_text("result 1")
    canvas.click(position=place_of(page, row["node_id"]))
    passages = page.locator("#source mark.passage")
    expect(passages.first).to_be_visible()
    assert visible_words(" ".join(passages.all_text_contents())) == visible_words(row["shown"])
    page.keyboard.press("Escape")
    expect(canvas).to_be_focused()
    page.mouse.move(0, 0)
    expect(told).to_be_empty()
    page.keyboard.press("ArrowRight")
    expect(told).to_contain_text("result 1")
    first = told.text_content()
    for key in ("ArrowLeft", "ArrowUp", "ArrowDown", "ArrowRight"):  # it may be the outermost point
        page.keyboard.press(key)
        if told.text_content() != first:
            break
    expect(told).not_to_have_text(first)
    page.keyboard.press("Enter")
    expect(page.locator("#source mark.passage").first).to_be_in_viewport()
    page.keyboard.press("Escape")
    listed.nth(1).click()
    expect(listed.nth(1)).to_have_attribute("aria-pressed", "true")
    canvas.focus()
    for key in ("ArrowLeft", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
        expect(told).to_contain_text(f"({topics[1][0]})")
    assert "view=map" in page.url


def test_a_map_of_documents_and_a_part_of_a_large_one(visit, tmp_path, monkeypatch):
    path = build(tmp_path, **ODD)
    corpus_map(path, level="document", clusters=2)
    monkeypatch.setattr(pages, "MOST_POINTS", 3)
    with server(path) as address:
        page = visit(f"{address}?view=map")
        expect(page.locator("#map-state")).to_have_text(f"3 of {len(ODD)} documents in 2 clusters.")
        first, again = (page.request.get(f"{address}map").json() for _ in range(2))
        assert first == again
        assert len(first["x"]) == len(first["node_id"]) == len(set(first["document"])) == 3
        page.locator("#map-canvas").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.locator("#source-title")).to_be_focused()
        expect(page.locator("#source mark.passage").first).to_be_visible()


def test_without_a_map_the_command_is_told(visit, odd):
    visit.failing = True
    page = visit(f"{odd[0]}?view=map")
    expect(page.locator("#map-state")).to_have_text("kb.duckdb has no map yet. Draw one with: sqlrag map kb.duckdb")
    expect(page.locator("#map-canvas")).to_be_hidden()


def violations(page):
    """Return what axe finds in the page in light, and in its colours in dark."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe.Axe().axe_script)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    page.emulate_media(color_scheme="dark")
    found += page.evaluate("axe.run(document, {runOnly: ['color-contrast']})")["violations"]
    page.emulate_media(color_scheme="light")
    return [(one["id"], [node["target"] for node in one["nodes"]]) for one in found]


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["1280", "390"])
def test_axe_finds_nothing(visit, address, viewport):
    visit.failing = True
    page = visit(address, viewport)
    expect(page.locator("#corpus")).to_contain_text("documents")
    found = {"empty": violations(page)}
    ask(page, QUESTION)
    expect(page.locator("#list li")).to_have_count(10)
    page.locator("#tags summary").click()
    found["results"] = violations(page)
    page.click("#map-toggle")
    page.locator("#map-clusters button").first.click()
    page.click("#help")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found["map"] = violations(page)
    page.click("#map-toggle")
    page.keyboard.press("Escape")
    page.click("#ask")
    expect(page.locator("#answer-state")).to_contain_text("By small")
    found["answer"] = violations(page)
    page.locator("#list .open").nth(1).click()
    expect(page.locator("#source mark.passage").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found["source"] = violations(page)
    page.click("#close")
    page.route("**/hybrid_query", lambda route: route.fulfill(status=503, json={"detail": "It is busy."}))
    ask(page, "another")
    expect(page.get_by_role("alert")).not_to_be_empty()
    found["problem"] = violations(page)
    page.route("**/hybrid_query", lambda route: route.fulfill(status=401, json={}))
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    found["key"] = violations(page)
    assert {state: wrong for state, wrong in found.items() if wrong} == {}


ROWS = """
    SELECT * FROM (VALUES
        (101, 'Late parcel', 'The parcel came late, and the pump was wet.', 24.50,
         DATE '2024-03-01', true, ['wet', 'late']),
        (9007199254740993, '<script>window.taken = 1</script>', 'A pump <b>came</b> by mistake.', 1039.00,
         DATE '2024-03-04', false, ['<img src=x onerror="window.taken = 2">']),
        (103, NULL, 'The pump of parcel 7 does not start.', NULL, DATE 'infinity', NULL, NULL)
    ) AS t(id, subject, body, "price <i>", day, open, marks)
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    (folder / "docs").mkdir()
    (folder / "docs" / "pump.md").write_text("# Pumps\n\nA pump and a parcel.")
    path = folder / "kb.duckdb"
    sqlrag.prepare_embeddings(folder / "docs", path, 200, embed_model_name=MINILM, verbose=False)
    sqlrag.index_rows(ROWS, path, key="id", text="body", title="subject", collection="tickets", progress="off")
    with server(path) as address:
        yield address, path


CELLS = {
    "101": ["101", "Late parcel", "24.50", "2024-03-01", "true", "wet, late"],
    "9007199254740993": [
        *("9007199254740993", "<script>window.taken = 1</script>", "1039.00", "2024-03-04", "false"),
        '<img src=x onerror="window.taken = 2">',
    ],
    "103": ["103", "NULL", "NULL", "infinity", "NULL", "NULL"],
}


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["1280", "390"])
def test_a_row_shows_its_columns(visit, rows, viewport):
    address, _ = rows
    page = visit(f"{address}?q=pump+parcel", viewport)
    expect(page.locator("#list li")).to_have_count(4)
    expect(page.locator("#list .row")).to_have_count(3)  # none of the page of Markdown
    names = ["id", "subject", "price <i>", "day", "open", "marks"]
    for key, cells in CELLS.items():
        table = page.locator(f"#list li:has([data-node='tickets/{key}#0']) .row")
        assert table.locator("th").all_text_contents() == names
        assert table.locator("td").all_text_contents() == cells
        align = "cells => cells.map(cell => getComputedStyle(cell).textAlign)"
        for name in ("th", "td"):
            assert table.locator(name).evaluate_all(align) == ["end", "start", "end", "start", "start", "start"]
        assert table.locator("th").nth(2).get_attribute("title") == "DECIMAL(6,2)"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == []
    page.locator("[data-node='tickets/9007199254740993#0']").click()
    expect(page.locator("#source-row td")).to_have_count(6)
    assert page.locator("#source-row td").all_text_contents() == CELLS["9007199254740993"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == []
    assert page.evaluate("window.taken") is None
    page.keyboard.press("Escape")
    page.locator("[data-node='pump.md#0']").click()
    expect(page.locator("#source mark.passage").first).to_be_visible()
    expect(page.locator("#source-row")).to_be_empty()


def test_rows_are_shown_without_their_columns_where_these_fail(visit, rows):
    address, _ = rows
    visit.failing = True
    page = visit(address)
    page.route("**/get_source_documents", lambda route: route.fulfill(status=503, json={"detail": "It is busy."}))
    ask(page, "pump")
    expect(page.locator("#list li")).to_have_count(4)
    expect(page.locator("#notices")).to_contain_text("The columns are not shown: The server is busy")


def condition(page, field, sign, value):
    if not page.locator("#metadata[open]").count():
        page.locator("#metadata summary").click()
    page.get_by_label("Field").select_option(field)
    page.get_by_label("Condition").select_option(label=sign)
    page.get_by_label("Value").fill(value)
    page.keyboard.press("Enter")


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["1280", "390"])
def test_metadata_filter_by_columns_and_fields(visit, rows, viewport):
    address, path = rows
    page = visit(f"{address}?q=pump+parcel", viewport)
    expect(page.locator("#list li")).to_have_count(4)
    page.locator("#metadata summary").click()
    expect(page.get_by_label("Field")).to_be_focused()
    page.get_by_label("Field").select_option("price <i>")
    expect(page.get_by_label("Value")).to_have_attribute("placeholder", "24.5 to 1039")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Add the filter").click()  # without a value
    assert page.get_by_label("Value").evaluate("input => input.validationMessage") == "Enter a number."
    condition(page, "price <i>", "at most", "100")
    expect(page.locator("#list .open")).to_have_count(1)
    assert nodes(page) == ["tickets/101#0"]
    chips = page.locator("#conditions button")
    expect(chips).to_have_text(["price <i> at most 100 ×"])
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Remove the filter price <i> at most 100").click()
    expect(page.locator("#list li")).to_have_count(4)
    wanted = {
        ("open", "is", "false"): {"open": False},
        ("marks", "has", "wet"): {"marks": {"$contains": "wet"}},
        ("subject", "contains", "LATE"): {"subject": {"$text_match_insensitive": "LATE"}},
        ("day", "at least", "2024-03-02"): {"day": {"$gte": "2024-03-02"}},
        ("id", "is", "101"): {"id": 101},
    }
    for (field, sign, value), metadata in wanted.items():
        condition(page, field, sign, value)
        expect(chips).to_have_text([f"{field} {sign} {value} ×"])
        found = [row["node_id"] for row in sqlrag.hybrid_query("pump parcel", path, metadata=metadata)]
        assert found
        expect(page.locator("#list .open").first).to_have_attribute("data-node", found[0])
        expect(page.locator("#list .open")).to_have_count(len(found))
        assert nodes(page) == found
        page.click("#clear")
        expect(page.locator("#conditions")).to_be_hidden()
        expect(page.locator("#list .open")).to_have_count(4)
    condition(page, "open", "is", "true")
    condition(page, "marks", "has", "late")
    expect(chips).to_have_count(2)
    again = visit(page.url, viewport)
    expect(again.locator("#conditions button")).to_have_text(["open is true ×", "marks has late ×"])
    expect(again.locator("#list .open")).to_have_count(1)
    assert nodes(again) == ["tickets/101#0"]
    again.goto(f"{address}?q=pump&filter=[1]&filter=no&filter=[%22id%22,%22$where%22,1]")
    expect(again.locator("#list li")).to_have_count(4)  # what is no condition is none
    expect(again.locator("#conditions")).to_be_hidden()


LINKED = {
    "index_md": (
        "# Cellar\n\nSee [the guide](guides/storage.md#in-the-light), [tasting](tasting.html), [gone](gone.md), "
        "[the web](https://example.org/), [a script](javascript:window.taken=1) and "
        "<a href='tasting.html' data-link='0' data-node='x'>forged</a>."
    ),
    "tasting_html": "<h1>Tasting</h1><p>White before red, as in <a href='guides/storage.md'>storage</a>.</p>",
}


def test_links_lead_to_the_documents_of_the_file(visit, tmp_path):
    (tmp_path / "docs" / "guides").mkdir(parents=True)
    guide = "# Storage\n\nLying down.\n\n" + "Cool. " * 400 + "\n\n## In the light\n\nWine is kept dark.\n"
    (tmp_path / "docs" / "guides" / "storage.md").write_text(guide)
    path = build(tmp_path, **LINKED)
    with sqlrag.Store(path) as store:
        assert store.select("serving/links", node_id="guides/storage.md#0") == []
    with server(path) as address:
        page = visit(f"{address}?q=cellar&source=index.md%230")
        text = page.locator("#source-text")
        expect(text.locator("a[data-node]")).to_have_text(["the guide", "tasting", "forged"])
        hrefs = {link.text_content(): link.get_attribute("href") for link in text.locator("a").all()}
        assert hrefs["the web"] == "https://example.org/"
        assert hrefs.get("gone") is hrefs.get("a script") is None
        assert violations(page) == []
        text.get_by_text("the guide", exact=True).click()
        expect(page.locator("#source-place")).to_contain_text("guides/storage.md")
        expect(page.locator("#source mark.passage").first).to_have_text("In the light")
        expect(page.locator("#source mark.passage").first).to_be_in_viewport()
        page.go_back()
        text.get_by_text("tasting", exact=True).click()
        text.get_by_text("storage", exact=True).click()
        expect(page.locator("#source-place")).to_contain_text("guides/storage.md")
        assert page.evaluate("window.taken") is None
