"""Makes the pictures of the README from the handbook: the search page and a notebook, in Chromium.

python data/make_pictures.py

Needs a checkout with the extras ``test`` and ``notebook``, and Chromium on the PATH.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

DATA = Path(__file__).resolve().parent
QUESTION = "What happens to a PDF with a password?"
WIDTH, HEIGHT = 1000, 640


def main() -> None:
    """Write both pictures into ``data/pictures``."""
    import sqlrag

    (DATA / "pictures").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "handbook.duckdb"
        model = "sentence-transformers/all-MiniLM-L6-v2"
        sqlrag.prepare_embeddings(DATA / "handbook", path, 200, embed_model_name=model)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        picture_of_search_page(page, path)
        picture_of_notebook(page, Path(folder))
        browser.close()


def picture_of_search_page(page, path: Path) -> None:
    """Ask a question on the page that ``sqlrag serve`` shows."""
    server = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "sqlrag", "serve", str(path), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        page.goto(server.stdout.readline().strip())
        page.get_by_role("searchbox").fill(QUESTION)
        page.keyboard.press("Enter")
        page.get_by_role("article").first.wait_for()
        page.screenshot(path=DATA / "pictures" / "search-page.png")
    finally:
        server.terminate()
        server.wait()


def picture_of_notebook(page, folder: Path) -> None:
    """Show the first notebook, with its outputs, from the cell that searches."""
    notebook = DATA.parent / "notebooks" / "01_quickstart.ipynb"
    subprocess.run(  # noqa: S603 - our own program
        [
            sys.executable,
            "-m",
            "nbconvert",
            "--to",
            "html",
            "--embed-images",
            "--output-dir",
            str(folder),
            str(notebook),
        ],
        check=True,
    )
    page.goto((folder / "01_quickstart.html").as_uri())
    page.locator(".sqlrag-results, mark").first.scroll_into_view_if_needed()
    page.evaluate("window.scrollBy(0, 120)")
    page.screenshot(path=DATA / "pictures" / "notebook.png")


if __name__ == "__main__":
    main()
