"""``sqlrag.toml``: where it is found, what decides before it, and what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import tomllib

import pytest
from typer.testing import CliRunner

from sqlrag import InputError, Store
from sqlrag.cli import app, config
from sqlrag.ingest.update import folders_of
from tests.cli.test_cli import sqlrag_process
from tests.support.embedding_server import KEY, EmbeddingServer, serving
from tests.support.helpers import write

MODEL = '[embedding]\nprovider = "hashing"\nmodel = "hashing-64"\n'
WHOLE = (
    '[store]\nfile = "kb.duckdb"\n' + MODEL + "[chunking]\nchunk_size = 90\n[search]\ntop_k = 1\n"
    '[collections.fruit]\nfolder = "docs"\n[collections.machines]\nfolder = "guides"\nignore = ["old/"]\n'
)


@pytest.fixture
def project(tmp_path):
    """Return a folder with a configuration, that is the root of a repository."""
    (tmp_path / ".git").mkdir()
    write(tmp_path, docs__mango_md="The mango is sweet.", docs__lychee_md="The lychee is sweet.")
    write(tmp_path, guides__pump_md="A pump has a seal.", guides__old__gear_md="A gear.")
    (tmp_path / "sqlrag.toml").write_text(WHOLE)
    return tmp_path


def started(*arguments, cwd, code=0, **environment):
    """Run a process: options that stand after the command are those of the program."""
    done = sqlrag_process(*arguments, cwd=cwd, **environment)
    assert done.returncode == code, done.stderr
    return done


def run(*arguments, cwd, code=0, **environment):
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)
    assert done.exit_code == code, done.stderr
    return done


def refused(folder, text):
    """Return the message for a configuration that is not accepted."""
    (folder / "sqlrag.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as error:
        config.load(folder / "sqlrag.toml")
    return str(error.value)


class TestUse:
    @pytest.mark.slow
    def test_a_project_from_build_to_search(self, project):
        """Without any option: every collection is built, updated and searched, from a folder below as well."""
        built = json.loads(run("prepare-embeddings", "--format", "json", cwd=project).stdout)
        counts = [(one["collection"], one["documents"], len(one["skipped"])) for one in built["collections"]]
        assert counts == [("fruit", 2, 0), ("machines", 1, 1)]
        with Store(project / "kb.duckdb") as store:
            facts = store.get_embedding_metadata()
            assert (facts["embedding"]["model"], facts["chunking"]["chunk_size"]) == ("hashing-64", 90)
        (project / "docs" / "plum.md").write_text("The plum is sweet.")
        (project / "guides" / "valve.md").write_text("A valve.")
        updated = json.loads(run("update", "--format", "json", cwd=project / "docs").stdout)
        assert [one["added"] for one in updated] == [["fruit:plum.md"], ["machines:valve.md"]]
        done = started("lexical-query", "sweet", "--format", "json", cwd=project / "docs")
        assert len(json.loads(done.stdout)) == 1
        assert done.stderr == f"note: settings of {project / 'sqlrag.toml'}\n"

    @pytest.mark.slow
    def test_a_folder_that_is_named_is_its_collection(self, project):
        run("prepare-embeddings", cwd=project)
        (project / "guides" / "valve.md").write_text("A valve.")
        (project / "docs" / "plum.md").write_text("The plum is sweet.")
        report = json.loads(run("update", "guides", "--format", "json", cwd=project).stdout)
        assert report["added"] == ["machines:valve.md"]

    def test_one_of_the_collections(self, project):
        run("prepare-embeddings", "--collection", "machines", cwd=project)
        with Store(project / "kb.duckdb") as store:
            names = store.cursor().sql("SELECT DISTINCT collection FROM sources").fetchall()
        assert names == [("machines",)]
        done = run("update", "--collection", "tools", cwd=project, code=2)
        assert "has no collection 'tools'" in done.stderr

    @pytest.mark.slow
    def test_the_collection_named_default_can_be_updated_alone(self, project):
        (project / "sqlrag.toml").write_text(WHOLE.replace("fruit", "default"))
        run("prepare-embeddings", cwd=project)
        (project / "docs" / "plum.md").write_text("The plum is sweet.")
        (project / "guides" / "valve.md").write_text("A valve.")
        report = json.loads(run("update", "--collection", "default", "--format", "json", cwd=project).stdout)
        assert [(one["collection"], one["added"]) for one in report] == [("default", ["plum.md"])]

    @pytest.mark.rest
    def test_a_collection_that_is_no_longer_named_is_told_by_update(self, project):
        run("prepare-embeddings", cwd=project)
        of_both = run("update", "--prune", cwd=project)
        assert "has no collection" not in of_both.stderr
        headings = [line for line in of_both.stdout.splitlines() if line.endswith(":")]
        assert headings == [
            f"{project / 'docs'} (collection fruit):",
            f"{project / 'guides'} (collection machines):",
        ]
        (project / "sqlrag.toml").write_text(WHOLE.partition("[collections.machines]")[0])
        done = run("update", "--prune", cwd=project)
        assert f"sqlrag.toml has no collection machines, so its documents, of {project / 'guides'}" in done.stderr
        run("delete", "--collection", "machines", "--db", project / "kb.duckdb", cwd=project)
        assert "has no collection" not in run("update", cwd=project).stderr

    @pytest.mark.rest
    def test_another_file_of_the_project_is_updated_from_its_own_folder_or_tables(self, project):
        options = ("--provider", "hashing", "--model", "hashing-64")
        write(project, notes__tea_md="Tea is hot.")
        run("--no-config", "build", "notes", "-o", "other.duckdb", *options, cwd=project)
        (project / "t.csv").write_text("id,body\n1,A red lamp.\n")
        run(
            "--no-config", "build", "t.csv", "--key", "id", "--text", "body", "-o", "rows.duckdb", *options, cwd=project
        )
        for file, names in (("other.duckdb", ["default"]), ("rows.duckdb", ["t"])):
            run("update", file, cwd=project)
            with Store(project / file) as store:
                assert [
                    one for (one,) in store.cursor().sql("SELECT DISTINCT collection FROM sources").fetchall()
                ] == names

    @pytest.mark.rest
    def test_what_decides_before_it(self, project):
        """An option, then the environment, then the configuration, then the default."""
        run("prepare-embeddings", cwd=project)
        other = project / "other.duckdb"
        run("prepare-embeddings", "docs", "-o", other, "--chunk-size", "50", cwd=project)
        with Store(other) as store:
            assert store.get_embedding_metadata()["chunking"]["chunk_size"] == 50

        def found(*arguments, **environment):
            return json.loads(run("info", *arguments, "--format", "json", cwd=project, **environment).stdout)["path"]

        assert found() == str(project / "kb.duckdb")
        assert found(SQLRAG_DB=str(other)) == str(other)
        assert found("kb.duckdb", SQLRAG_DB=str(other)) == str(project / "kb.duckdb")
        assert found(other) == found("--db", other) == str(other)
        rows = run("lexical-query", "sweet", "-k", "2", "--format", "json", cwd=project).stdout
        assert len(json.loads(rows)) == 2

    def test_the_folder_must_be_named_without_collections(self, project):
        (project / "sqlrag.toml").write_text(MODEL)
        done = run("prepare-embeddings", "-o", "kb.duckdb", cwd=project, code=2)
        assert "Name a folder, such as docs, or collections in sqlrag.toml" in done.stderr


class TestDiscovery:
    def test_the_nearest_up_to_the_root_of_the_repository(self, project, monkeypatch):
        deep = project / "docs" / "a" / "b"
        deep.mkdir(parents=True)
        monkeypatch.setattr(config, "given", None)
        monkeypatch.chdir(deep)
        assert config.find() == project / "sqlrag.toml"
        (project / "docs" / "sqlrag.toml").write_text("")
        assert config.find() == project / "docs" / "sqlrag.toml"
        (deep / ".git").mkdir()
        assert config.find() is None
        assert config.find([project]) == project / "sqlrag.toml"

    def test_above_a_folder_outside_of_home_and_repositories_others_may_write(self, tmp_path, monkeypatch):
        (tmp_path / "a").mkdir()
        (tmp_path / "sqlrag.toml").write_text("")
        monkeypatch.setattr(config, "given", None)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.chdir(tmp_path / "a")
        assert config.find() is None
        monkeypatch.setenv("HOME", str(tmp_path))
        assert config.find() == tmp_path / "sqlrag.toml"

    @pytest.mark.rest
    def test_beside_the_file_that_is_named(self, project, tmp_path_factory):
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        run("prepare-embeddings", cwd=project)
        search = ["lexical-query", "sweet", "--db", project / "kb.duckdb", "--format", "json"]
        assert len(json.loads(run(*search, cwd=elsewhere).stdout)) == 1
        without = started(*search, "--no-config", cwd=elsewhere)
        assert len(json.loads(without.stdout)) == 2
        assert without.stderr == ""

    @pytest.mark.rest
    def test_named_by_option_or_variable(self, project, tmp_path_factory):
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        path = project / "sqlrag.toml"
        run("--config", path, "prepare-embeddings", cwd=elsewhere)
        for arguments in (["--config", path], [f"--config={path}"]):
            assert started("info", *arguments, cwd=elsewhere).stdout.startswith("file ")
        assert run("info", cwd=elsewhere, SQLRAG_CONFIG=str(path)).stdout.startswith("file ")
        done = run("--config", "none.toml", "info", cwd=elsewhere, code=1)
        assert "There is no configuration none.toml" in done.stderr
        assert "is not a file" in run("--config", ".", "info", cwd=elsewhere, code=2).stderr


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("[chunking]\n\nchunk_sise = 4\n", r"line 3: \[chunking\] chunk_sise is an unknown key. Did you mean"),
            ("[chunkin]\nchunk_size = 4\n", r"line 1: chunkin is an unknown table. Did you mean chunking\?"),
            ("[search]\nchunk_size = 4\n", r"line 2: \[search\] chunk_size is .* It belongs into \[chunking\]"),
            ("chunk_size = 4\n", r"line 1: chunk_size is an unknown table. It belongs into \[chunking\]"),
            ('[chunking]\nchunk_size = "4"\n', r"chunk_size must be a whole number, not '4'"),
            ("[chunking]\nchunk_size = true\n", "must be a whole number, not True"),
            ("[chunking]\nchunk_size = 4.5\n", "must be a whole number, not 4.5"),
            ("[chunking]\nmarkdown = 1\n", "markdown must be true or false, not 1"),
            ("[chunking]\nchunk_unit = 'words'\n", "must be one of tokens, chars, not 'words'"),
            ("[serve]\nport = 70000\n", "port must be a whole number of 0 to 65535, not 70000"),
            ("[serve]\ntimeout = inf\n", "timeout must be a number, not inf"),
            ("[documents]\npattern = [1]\n", r"pattern must be a text in quotes, or a list of them, not \[1\]"),
            ("store = 3\n", r"store is a table, written \[store\], not 3"),
            ("[collections.a]\nfolder = 'x'\n[collections.b]\nfolder = './x/'\n", "line 4: .* that of .collections.a"),
            ("[collections]\na = 'x'\n", r"\[collections\] a needs its folder"),
            ("[collections.a]\nfolder = 'x'\ntags = ['y']\n", "Valid are: folder, ignore, pattern"),
            ("[collections.a]\nfolder = ' '\n", r"line 2: \[collections.a\] folder is blank"),
            ("[collections.'a:b']\nfolder = 'x'\n", r"a:b is no name of a collection"),
            ("[store]\nfile = ''\n", r"line 2: \[store\] file is blank"),
            ("[store]\nfile = kb\n", "is not TOML: .*line 2, column 8"),
            ("[a]\n[a]\n", "is not TOML: .*line 2"),
            (b"[store]\nfile = 'caf\xe9'\n", "line 2: this is not UTF-8"),
            (b"#" * (2**20 + 1), "more than 1,048,576 bytes"),
            ("a = " + "[" * 5000, "is not TOML"),
        ],
    )  # fmt: skip
    def test_wrong_files(self, tmp_path, text, expected):
        message = refused(tmp_path, text)
        assert re.search(expected, message), message
        assert str(tmp_path / "sqlrag.toml") in message

    @pytest.mark.parametrize(
        "text",
        [
            "[embedding]\napi_key = 'sk-secret-1'\n",
            "[serve]\ntoken = 'sk-secret-1'\n",
            "[embedding]\napi_key_env = 'sk-secret-1'\n",
            "[store]\nfile = 'postgresql://me:sk-secret-1@localhost/db'\n",
            "[collections.a]\nfolder = 'x'\npassword = 'sk-secret-1'\n",
        ],
    )
    def test_secrets_are_refused_and_not_repeated(self, tmp_path, text):
        message = refused(tmp_path, text)
        assert "environment variable" in message
        assert "sk-secret-1" not in message

    def test_another_machine_must_be_named_by_the_user(self, tmp_path, monkeypatch):
        """A configuration that came with a folder must not send texts and keys anywhere."""
        text = "[embedding]\nprovider = 'openai'\nbase_url = 'https://collect.example/v1'\n"
        assert "names another machine" in refused(tmp_path, text)
        assert "names another machine" in refused(tmp_path, "[ask]\nchat_base_url = 'http://collect.example'\n")
        assert "names another machine" in refused(tmp_path, "[store]\nfile = 'postgresql://collect.example/db'\n")
        monkeypatch.setattr(config, "given", tmp_path / "sqlrag.toml")
        assert config.load(tmp_path / "sqlrag.toml").values["store"]

    @pytest.mark.rest
    def test_a_broken_file_does_not_keep_help_from_being_read(self, tmp_path):
        (tmp_path / "sqlrag.toml").write_text("[")
        done = started("models", cwd=tmp_path, code=2)
        assert (done.stdout, "Traceback" in done.stderr) == ("", False)
        assert "is not TOML" in done.stderr
        assert "Usage" in started("update", "--help", cwd=tmp_path).stdout
        started("models", "--no-config", cwd=tmp_path)

    def test_a_folder_of_a_collection_that_is_not_there(self, project):
        (project / "sqlrag.toml").write_text(WHOLE.replace('"guides"', '"gone"'))
        message = run("prepare-embeddings", cwd=project, code=2).stderr
        assert f"line 13: [collections.machines] folder does not exist: {project / 'gone'} is no folder" in message
        assert not (project / "kb.duckdb").exists()

    @pytest.mark.slow
    def test_one_that_is_not_there_any_more_blocks_no_other(self, project):
        run("prepare-embeddings", cwd=project)
        run("update", cwd=project)
        (project / "guides").rename(project / "gone")
        (project / "docs" / "new.md").write_text("alpha")
        done = run("update", cwd=project, code=1)
        assert "new.md" in done.stderr
        assert "has no collection" not in done.stderr
        assert (
            f"the folder {project / 'guides'} of [collections.machines] is not there. Correct the line" in done.stderr
        )
        assert f"sqlrag delete --collection machines --db {project / 'kb.duckdb'}" in done.stderr
        (project / "gone").rename(project / "guides")
        assert "settings of" in run("update", cwd=project).stderr

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
    def test_no_permission(self, tmp_path):
        (tmp_path / "sqlrag.toml").touch(mode=0)
        with pytest.raises(InputError, match="--no-config does without it"):
            config.load(tmp_path / "sqlrag.toml")

    def test_byte_order_marks_and_carriage_returns(self, tmp_path):
        refused_text = ("\ufeff" + "[chunking]\r\nchunk_size = 4\r\nx = 1\r\n").encode()
        assert "line 3: [chunking] x is an unknown key" in refused(tmp_path, refused_text)
        (tmp_path / "sqlrag.toml").write_bytes("\ufeff[store]\r\nwait = 5\r\n".encode())
        assert config.load(tmp_path / "sqlrag.toml").values == {"store": {"wait": 5}}


class TestKey:
    @pytest.mark.slow
    def test_a_key_goes_to_the_configured_server_from_build_to_search(self, project):
        """By the variable that is named, which is not that of the provider; and the file has no key."""
        server = EmbeddingServer()
        with serving(server) as address:
            text = WHOLE.replace(MODEL, f'[embedding]\nprovider = "openai"\nmodel = "m"\nbase_url = "{address}/v1"\n')
            text = text.replace("[chunking]", 'api_key_env = "OUR_KEY"\n[chunking]')
            (project / "sqlrag.toml").write_text(text)
            without = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}
            message = run("prepare-embeddings", cwd=project, code=2, OUR_KEY="", **without).stderr
            assert "line 7: [embedding] api_key_env names OUR_KEY, which is not set" in message
            run("prepare-embeddings", cwd=project, OUR_KEY=KEY, **without)
            run("vector-query", "mango", cwd=project, OUR_KEY=KEY, **without)
        sent = [value for one in server.headers for name, value in one.items() if name.lower() == "authorization"]
        assert len(sent) == len(server.headers) > 1
        assert {*sent} == {f"Bearer {KEY}"}
        assert KEY.encode() not in (project / "kb.duckdb").read_bytes()


@pytest.mark.slow
def test_a_collection_of_the_name_default_is_one_of_several(tmp_path):
    write(tmp_path, docs__mango_md="The mango is sweet.", other__kiwi_md="The kiwi is green.")
    (tmp_path / "sqlrag.toml").write_text(
        '[collections.default]\nfolder = "docs"\n[collections.other]\nfolder = "other"\n'
    )
    hashing = ("--provider", "hashing", "--model", "hashing-64")
    run("build", "-o", "kb.duckdb", "--collection", "default", *hashing, cwd=tmp_path)
    assert [one.collection for one in folders_of(tmp_path / "kb.duckdb")[0]] == ["default"]
    run("build", "-o", "kb.duckdb", "--overwrite", *hashing, cwd=tmp_path)
    assert [one.collection for one in folders_of(tmp_path / "kb.duckdb")[0]] == ["default", "other"]


class TestInit:
    @pytest.mark.slow
    def test_what_it_writes_is_read(self, tmp_path):
        assert run("init", "docs", cwd=tmp_path).stderr == "note: docs is not a folder yet.\n"
        (tmp_path / "sqlrag.toml").unlink()
        write(tmp_path, docs__mango_md="The mango is sweet.")
        done = run("init", "docs", cwd=tmp_path)
        assert (done.stdout, done.stderr) == (f"{tmp_path / 'sqlrag.toml'}\n", "")
        text = (tmp_path / "sqlrag.toml").read_text()
        assert tomllib.loads(text) == {
            **{table: {} for table in config.known_keys()},
            "store": {"file": "kb.duckdb"},
            "collections": {"docs": {"folder": "docs"}},
        }
        run("prepare-embeddings", "--provider", "hashing", "--model", "hashing-64", cwd=tmp_path)
        again = sqlrag_process("init", cwd=tmp_path)
        assert again.returncode
        assert "exists" in again.stderr
        assert (tmp_path / "sqlrag.toml").read_text() == text

    def test_every_key_is_there_as_a_comment_with_a_valid_value(self, tmp_path):
        run("init", cwd=tmp_path)
        path = tmp_path / "sqlrag.toml"
        active = re.sub(r"^# (\w+ = |\[coll)", r"\1", path.read_text(), flags=re.MULTILINE)
        tables = tomllib.loads(active)
        assert {name: [*keys] for name, keys in tables.items() if name != "collections"} == {
            table: [*keys] for table, keys in config.known_keys().items()
        }
        # What is no default says so, and none of it is a mere placeholder.
        examples = [line for line in active.splitlines() if line.endswith("# an example")]
        assert examples
        assert not re.search(r'^\w+ = (""|\[\]|null)', active, re.MULTILINE)
        path.write_text(active)
        config.load(path)

    @pytest.mark.slow
    def test_a_folder_that_the_file_has_keeps_its_collection(self, tmp_path):
        write(tmp_path, docs__mango_md="The mango is sweet.", guides__pump_md="A pump has a seal.")
        hashing = ("--provider", "hashing", "--model", "hashing-64")
        run("build", "docs", *hashing, cwd=tmp_path)
        run("init", "docs", "guides", cwd=tmp_path)
        assert tomllib.loads((tmp_path / "sqlrag.toml").read_text())["collections"] == {
            "default": {"folder": "docs"},
            "guides": {"folder": "guides"},
        }
        done = run("update", "--format", "json", cwd=tmp_path)
        assert [(one["collection"], one["added"]) for one in json.loads(done.stdout)] == [
            ("default", []),
            ("guides", ["guides:pump.md"]),
        ]
        assert "twice" not in done.stderr

    @pytest.mark.slow
    def test_two_folders_of_one_collection_and_a_file_that_cannot_be_read(self, tmp_path):
        write(tmp_path, docs__mango_md="The mango is sweet.", guides__pump_md="A pump has a seal.")
        run("build", "docs", "--provider", "hashing", "--model", "hashing-64", cwd=tmp_path)
        run("update", "guides", cwd=tmp_path)
        done = run("init", "docs", "guides", cwd=tmp_path)
        assert tomllib.loads((tmp_path / "sqlrag.toml").read_text())["collections"] == {"default": {"folder": "docs"}}
        assert "guides is a comment only: kb.duckdb has it as the collection 'default'" in done.stderr
        (tmp_path / "sqlrag.toml").unlink()
        (tmp_path / "bad.duckdb").write_text("no store")
        assert "bad.duckdb cannot be looked up" in run("init", "docs", "-o", "bad.duckdb", cwd=tmp_path).stderr
        config.load(tmp_path / "sqlrag.toml")


def test_ignore_of_a_command_replaces_that_of_a_collection(tmp_path):
    write(tmp_path, notes__a_md="alpha", notes__k_md="kappa", notes__n_md="nu")
    settings = "[store]\nfile = 'kb.duckdb'\n[embedding]\nmodel = 'hashing-64'\nprovider = 'hashing'\n"
    own = "[documents]\nignore = ['n.md']\n[collections.notes]\nfolder = 'notes'\nignore = ['k.md']\n"
    (tmp_path / "sqlrag.toml").write_text(settings + own)
    assert run("build", cwd=tmp_path).exit_code == 0
    for arguments, added in (((), []), (("--ignore", ""), ["k.md", "n.md"]), (("--ignore", "n*"), ["k.md"])):
        for named in ((), ("notes",), ("--collection", "notes")):
            done = run("update", *named, *arguments, "--dry-run", "-f", "json", cwd=tmp_path)
            (report,) = [json.loads(done.stdout)] if named == ("notes",) else json.loads(done.stdout)
            assert report["added"] == [f"notes:{name}" for name in added], (named, arguments)


def test_a_folder_that_was_moved_keeps_no_other_company(tmp_path):
    write(tmp_path, docs__mango_md="The mango is sweet.")
    run("build", "docs", "-o", "kb.duckdb", "--provider", "hashing", "--model", "hashing-64", cwd=tmp_path)
    (tmp_path / "docs").rename(tmp_path / "moved")
    for arguments in (("kb.duckdb", "moved"), ("moved",)):
        done = run("update", *arguments, cwd=tmp_path)
        assert "0 added, 0 changed" in done.stdout
        assert "has documents of" not in done.stderr


@pytest.mark.rest
def test_a_folder_under_a_second_collection_is_told_everywhere(tmp_path):
    write(tmp_path, docs__mango_md="The mango is sweet.")
    run("build", "docs", "--provider", "hashing", "--model", "hashing-64", cwd=tmp_path)
    assert "twice" not in run("update", "docs", cwd=tmp_path).stderr
    told = (
        f"The folder {tmp_path / 'docs'} is in kb.duckdb as the collections 'default' and 'fruit', so each of its "
        "documents is there twice"
    )
    commands = [
        f"sqlrag delete --folder '{tmp_path / 'docs'}' --collection '{name}' --db 'kb.duckdb'"
        for name in ("default", "fruit")
    ]
    remedy = ", or ".join(commands)
    for arguments in (("docs", "--collection", "fruit"), ("docs",), ()):
        done = run("update", *arguments, cwd=tmp_path)
        assert done.stderr.count(f"note: {told}. To remove it from one: {remedy}.") == 1
    findings = json.loads(run("doctor", "kb.duckdb", "--format", "json", cwd=tmp_path).stdout)
    assert [one["remedy"] for one in findings if one["found"] == told] == [remedy]
    # Of a collection with another folder, that one stays.
    write(tmp_path, other__kiwi_md="The kiwi is green.")
    said = (
        f"note: the collection default has documents of {tmp_path / 'docs'}, too; --collection NAME keeps folders apart"
    )
    assert [run("update", "other", cwd=tmp_path).stderr.count(said) for _ in range(2)] == [1, 0]
    done = run(*shlex.split(commands[0])[1:], "--dry-run", cwd=tmp_path)
    assert done.stdout == "1 document with 1 chunk would be deleted, 0 unknown\n"
    assert "would be deleted: mango.md\n" in done.stderr
    assert run(*shlex.split(commands[0])[1:], cwd=tmp_path).stdout == "1 document with 1 chunk deleted, 0 unknown\n"
    done = run("update", "--format", "json", cwd=tmp_path)
    assert "twice" not in done.stderr
    assert [(one["collection"], one["unchanged"]) for one in json.loads(done.stdout)] == [
        ("default", ["kiwi.md"]),
        ("fruit", ["fruit:mango.md"]),
    ]
