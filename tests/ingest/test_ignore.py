"""What is left out of a folder: ``.sqlragignore`` and the option ``ignore``, compared with git itself."""

from __future__ import annotations

import os
import random
import shutil
import subprocess

import pytest

from sqlrag import InputError, NotFoundError, Store, prepare_embeddings, update_embeddings
from sqlrag.ingest.folder import IgnoredFile, find_files
from tests.support.helpers import HASHING, write

NAMES = ["a.md", "b.txt", "a/a.md", "a/b/c.md", "a/b/d.txt", "b/a.md", "b/c/a.md", "c/b.txt", "c/a/x y.md", "d/[z].md"]


def found(root, **options):
    files, skipped = find_files(root, **options)
    return [path.relative_to(root).as_posix() for path in files], skipped


def folder_of(root, names=NAMES):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name} has words", encoding="utf-8")
    return root


def kept_by_git(root):
    """Return what git does not ignore, if ``.sqlragignore`` is the name of its lists."""
    subprocess.run(["git", "init", "-q", root], check=True)
    done = subprocess.run(
        ["git", "-C", root, "ls-files", "--others", "--exclude-per-directory=.sqlragignore", "-z"],
        capture_output=True, check=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
    )  # fmt: skip
    return sorted(name for name in done.stdout.decode().split("\0") if name and ".sqlragignore" not in name)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
class TestAsGit:
    @pytest.mark.parametrize(
        "lists",
        [
            {"": "*.txt\n"},
            {"": "a/\n!a/a.md\n"},
            {"": "a/*\n!a/b/\n"},
            {"": "/*\n!/a\n/a/*\n!/a/b\n"},
            {"": "*\n!*/\n!*.md\n"},
            {"": "**/a\n"},
            {"": "a/**/c.md\n"},
            {"": "# a.md\n\\#x\n  \nx\\ y.md\nx y.md   \n"},
            {"": "d/\\[z\\].md\n"},
            {"": "*.md\n", "a": "!a.md\n", "a/b": "!*.md\n"},
            {"": "!a.md\n", "a": "*\n", "a/b": "!c.md\n"},
            {"b": "/a.md\n", "c": "b.txt\r\nno\r\n"},
            {"": "\ufeffb.txt\n"},
            {"": "[ab].*\n!?/a.md\n"},
        ],
    )
    def test_examples(self, tmp_path, lists):
        root = folder_of(tmp_path)
        for where, text in lists.items():
            (root / where / ".sqlragignore").write_bytes(text.encode())
        names, skipped = found(root)
        assert names == kept_by_git(root)
        assert len(names) + sum(isinstance(one, IgnoredFile) for one in skipped) == len(NAMES)

    def test_random_lists(self, tmp_path):
        """As many patterns, in as many folders, as chance gives; the seeds are fixed."""
        parts = ["a", "b", "c", "*", "**", "a.md", "*.md", "?.txt", "[ab]", "x y.md"]
        for seed in (*range(38), 84):
            chance = random.Random(seed)
            root = folder_of(tmp_path / str(seed))
            for where in chance.sample(["", "a", "a/b", "b", "c"], 2):
                lines = [
                    chance.choice(["", "", "!"]) + chance.choice(["", "", "/"])
                    + "/".join(chance.choice(parts) for _ in range(chance.randint(1, 3)))
                    + chance.choice(["", "", "/"])
                    for _ in range(chance.randint(1, 4))
                ]  # fmt: skip
                (root / where / ".sqlragignore").write_text("\n".join(lines))
            names, _ = found(root)
            lists = {str(path): path.read_text() for path in root.rglob(".sqlragignore")}
            assert names == kept_by_git(root), (seed, lists)


class TestReport:
    def test_what_is_ignored_is_counted_with_the_list_that_says_so(self, tmp_path):
        root = folder_of(tmp_path / "docs")
        (root / ".sqlragignore").write_text("b/\n")
        (root / "c" / ".sqlragignore").write_text("*.md\n")
        index = prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING, ignore=["a/b"])
        assert index.report.documents == 5
        lines = str(index.report).splitlines()
        assert "  skipped 2: ignored by .sqlragignore" in lines
        assert "  skipped 2: ignored by ignore" in lines
        assert "  skipped 1: ignored by c/.sqlragignore" in lines

    def test_the_option_decides_before_the_files(self, tmp_path):
        root = folder_of(tmp_path)
        (root / ".sqlragignore").write_text("*.txt\n")
        assert "b.txt" in found(root, ignore=["!b.txt", "*.md"])[0]
        assert "c/b.txt" in found(root, ignore="!b.txt")[0]
        assert "a.md" not in found(root, ignore="*.md")[0]

    def test_names_are_compared_composed(self, tmp_path):
        root = folder_of(tmp_path, ["cafe\u0301.md", "Gro\u0308\u00dfe/x.md", "y.md"])
        (root / ".sqlragignore").write_text("caf\u00e9.md\nGr\u00f6\u00dfe/\n", encoding="utf-8")
        assert found(root)[0] == ["y.md"]

    def test_nothing_left_is_an_error_that_names_the_list(self, tmp_path):
        root = folder_of(tmp_path / "docs")
        (root / ".sqlragignore").write_text("*\n")
        with pytest.raises(NotFoundError, match=r"10 files were skipped: ignored by \.sqlragignore \(10\)"):
            prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING)


class TestUpdate:
    @pytest.mark.slow
    def test_what_is_newly_ignored_goes_as_what_is_gone(self, tmp_path):
        root = write(tmp_path / "docs", a_md="mango", drafts__b_md="draft words", c_md="pump")
        path = prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING).path
        (root / ".sqlragignore").write_text("drafts/\n")
        kept = update_embeddings(root, path, progress="off")
        assert (kept.missing, kept.removed) == (["drafts/b.md"], [])
        assert "drafts/b.md has no file any more, or is ignored" in str(kept)
        assert update_embeddings(root, path, prune=True, progress="off").removed == ["drafts/b.md"]
        with Store(path) as store:
            assert not store.lexical_query("draft words")
        (root / ".sqlragignore").unlink()
        back = update_embeddings(root, path, prune=True, progress="off")
        assert back.added == ["drafts/b.md"]
        assert update_embeddings(root, path, prune=True, progress="off", ignore=["drafts"]).removed == ["drafts/b.md"]

    def test_ignoring_everything_empties_no_file(self, tmp_path):
        root = write(tmp_path / "docs", a_md="mango")
        path = prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING).path
        (root / ".sqlragignore").write_text("*\n")
        with pytest.raises(NotFoundError, match="ignored by"):
            update_embeddings(root, path, prune=True, progress="off")
        with Store(path) as store:
            assert store.lexical_query("mango")

    def test_the_failure_of_an_ignored_document_is_no_failure_any_more(self, tmp_path):
        root = write(tmp_path / "docs", a_md="mango", bad_pdf="no pdf")
        path = prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING).path
        failures = "SELECT doc_id FROM ingest_failures"
        with Store(path) as store:
            assert store.cursor().sql(failures).fetchall() == [("bad.pdf",)]
        (root / ".sqlragignore").write_text("*.pdf\n")
        update_embeddings(root, path, progress="off")
        with Store(path) as store:
            assert store.cursor().sql(failures).fetchall() == []


class TestBadLists:
    def test_a_list_that_cannot_be_read_stops_the_run(self, tmp_path):
        """What it would leave out must not get into the file."""
        root = folder_of(tmp_path / "docs")
        (root / "a" / ".sqlragignore").write_bytes(b"caf\xe9\n")
        with pytest.raises(InputError, match=r"a/\.sqlragignore cannot be read: it is not UTF-8 \(byte 3\)"):
            find_files(root)
        (root / "a" / ".sqlragignore").write_bytes(b"x" * (2**20 + 1))
        with pytest.raises(InputError, match="larger than"):
            find_files(root)
        (root / "a" / ".sqlragignore").unlink()
        (root / "a" / ".sqlragignore").mkdir()
        with pytest.raises(InputError, match="not a regular file"):
            find_files(root)
        (root / "a" / ".sqlragignore").rmdir()
        os.mkfifo(root / "a" / ".sqlragignore")
        with pytest.raises(InputError, match="not a regular file"):
            find_files(root)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
    def test_no_permission(self, tmp_path):
        root = folder_of(tmp_path)
        (root / ".sqlragignore").touch(mode=0)
        with pytest.raises(InputError, match="Permission denied"):
            find_files(root)

    @pytest.mark.parametrize("pattern", ["[[:upper:]]*", "a[x[:digit:]]", "[!_[:alpha:]].md"])
    def test_a_class_by_name_is_refused_since_what_it_leaves_out_would_be_read(self, tmp_path, pattern):
        root = folder_of(tmp_path)
        (root / ".sqlragignore").write_text(f"# [[:upper:]]\n{pattern}\n")
        with pytest.raises(InputError, match=r"\.sqlragignore, line 2: the class \[:\w+:\] .* is not known here"):
            find_files(root)

    def test_a_wrong_pattern_is_named_with_its_line(self, tmp_path):
        root = folder_of(tmp_path)
        (root / ".sqlragignore").write_text("a\n!\n")
        with pytest.raises(InputError, match=r"\.sqlragignore, line 2: '!' is no pattern of gitignore"):
            find_files(root)
        with pytest.raises(InputError, match="ignore, line 1"):
            find_files(root, ignore="!")

    def test_a_hidden_folder_has_no_list(self, tmp_path):
        root = folder_of(tmp_path, [".git/a.md", "b.md"])
        (root / ".git" / ".sqlragignore").write_text("!\n")
        assert found(root)[0] == ["b.md"]
