"""The files of ``data/deploy``: each is checked by the program that reads it, and the proxies serve for a server."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
import yaml

from tests.support.helpers import ROOT
from tests.support.stores import make_small_store

DEPLOY = ROOT / "data" / "deploy"
KEY = "a-key-that-nobody-guesses"
NAME = "kb.example.org"


def program(*names):
    """Return the path of the first of the programs that is here, or skip the test."""
    paths = f"{os.environ['PATH']}{os.pathsep}/usr/sbin{os.pathsep}/usr/local/sbin"
    found = [path for path in (shutil.which(name, path=paths) for name in names) if path]
    if not found:
        pytest.skip(f"needs {' or '.join(names)}")
    return found[0]


def checked(*command, **environment):
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def running(command, **environment):
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=20)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The port of a server as the files of this folder start it."""
    path = tmp_path_factory.mktemp("deploy") / "kb.duckdb"
    make_small_store(path)
    command = [sys.executable, "-m", "sqlrag", "serve", str(path), "--allow-host", NAME, "--port", "0"]
    with running(command, PYTHONPATH=str(ROOT), SQLRAG_API_KEY=KEY) as process:
        yield int(process.stdout.readline().rstrip("/\n").rpartition(":")[2])


def asked(port, scheme, path, *, host=NAME, body=None, **headers):
    """Return status and body of what a proxy answers a browser."""
    context = ssl._create_unverified_context() if scheme == "https" else None
    headers = {"Host": host, "X-API-Key": KEY, "Content-Type": "application/json", **headers}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}{path}", data, headers)
    for _ in range(100):
        try:
            with urllib.request.urlopen(request, context=context, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:  # it does not listen yet
            time.sleep(0.1)
    raise AssertionError("nothing listens")


def check_served(port, scheme, host):
    assert asked(port, scheme, "/?q=secretword", host=host)[0] == 200
    own = {"Origin": f"{scheme}://{host}", "Sec-Fetch-Site": "same-origin"}
    status, body = asked(port, scheme, "/lexical_query", host=host, body={"query_text": "duck"}, **own)
    assert status == 200
    assert json.loads(body)["results"]
    assert asked(port, scheme, "/documents", host=host, Origin="https://evil.example")[0] == 403
    assert asked(port, scheme, "/documents", host=host, **{"X-API-Key": "wrong"})[0] == 401


@pytest.mark.slow
def test_nginx(server, tmp_path):
    nginx, openssl = program("nginx"), program("openssl")
    key, certificate, port = tmp_path / "key.pem", tmp_path / "certificate.pem", free_port()
    checked(
        openssl, *f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={NAME} -keyout {key} -out {certificate}".split()
    )
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    for there, here in (
        (f"/etc/ssl/certs/{NAME}.pem", certificate),
        (f"/etc/ssl/private/{NAME}.key", key),
        ("/var/log/nginx/sqlrag.log", tmp_path / "access.log"),
        ("listen 80;", f"listen 127.0.0.1:{free_port()};"),
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("http://127.0.0.1:8000", f"http://127.0.0.1:{server}"),
    ):
        assert text.count(there) == 1
        text = text.replace(there, str(here))
    folders = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = f"daemon off; pid {tmp_path}/pid; error_log stderr; events {{}} http {{ access_log off; {folders}\n{text}}}"
    (tmp_path / "nginx.conf").write_text(main)
    command = [nginx, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"]
    assert "test is successful" in checked(*command, "-t")
    with running(command):
        check_served(port, "https", NAME)
        statuses = [asked(port, "https", "/health")[0] for _ in range(80)]
    assert 429 in statuses
    log = (tmp_path / "access.log").read_text("utf-8")
    assert " GET / 200 " in log
    assert "secretword" not in log


def test_caddy(server, tmp_path):
    caddy, port = program("caddy"), free_port()
    folders = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    config = ["--config", str(DEPLOY / "Caddyfile"), "--adapter", "caddyfile"]
    assert "Valid configuration" in checked(caddy, "validate", *config, **folders)
    here = tmp_path / "Caddyfile"
    here.write_text("{\n\tadmin off\n}\n" + (DEPLOY / "Caddyfile").read_text("utf-8"))
    # For a name with a scheme it gets no certificate.
    named = {"SQLRAG_HOST": f"http://127.0.0.1:{port}", "SQLRAG_UPSTREAM": f"127.0.0.1:{server}", **folders}
    with running([caddy, "run", "--config", str(here), "--adapter", "caddyfile"], **named):
        check_served(port, "http", f"127.0.0.1:{port}")


@pytest.mark.rest
def test_systemd(tmp_path):
    """The program of the unit is this one's, as systemd looks whether it is there."""
    analyze = program("systemd-analyze")
    text = (DEPLOY / "sqlrag.service").read_text("utf-8")
    assert text.count("/opt/sqlrag/bin/sqlrag ") == 1
    unit = tmp_path / "sqlrag.service"
    unit.write_text(text.replace("/opt/sqlrag/bin/sqlrag ", f"{sys.executable} -m sqlrag "))
    assert checked(analyze, "verify", str(unit)) == ""
    said = checked(analyze, "security", "--offline=true", "--no-pager", str(unit))
    assert float(re.search(r"exposure level for sqlrag.service: ([\d.]+)", said)[1]) < 2
    unit.write_text(unit.read_text("utf-8").replace("Restart=on-failure", "Restart=sometimes"))
    assert "sometimes" in subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True).stderr


@pytest.mark.rest
def test_compose():
    """As composed: the key and the name are asked for, and what the server writes to is memory alone."""
    file = ["-f", str(DEPLOY / "compose.yml")]
    docker = [program("docker-compose")] if shutil.which("docker-compose") else [program("docker"), "compose"]
    if subprocess.run([*docker, "version"], capture_output=True).returncode:
        pytest.skip("needs docker compose")
    composed = yaml.safe_load(checked(*docker, *file, "config", SQLRAG_HOST=NAME, SQLRAG_API_KEY=KEY))["services"]
    assert f"--allow-host {NAME}" in str(composed["sqlrag"]["command"]).replace("', '", " ")
    assert composed["sqlrag"]["read_only"] is True
    assert "ports" not in composed["sqlrag"]  # only the proxy is reached
    without = {name: value for name, value in os.environ.items() if not name.startswith("SQLRAG_")}
    done = subprocess.run([*docker, *file, "config"], env=without, capture_output=True, text=True)
    assert done.returncode != 0
    assert "SQLRAG_" in done.stderr


@pytest.mark.slow
def test_the_image_is_made_of_what_a_build_needs(tmp_path):
    """No container is built here: what it copies makes the package, its extras exist, and it does not run as root."""
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    for line in re.findall(r"^COPY ((?!--from).+)$", text, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            path = tmp_path / target / (ROOT / source).name if target.endswith("/") else tmp_path / target
            path.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, path)
    checked(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(tmp_path)
    )
    assert len(list((tmp_path / "dist").glob("*.whl"))) == 1
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    extras = re.search(r"'\.\[([\w,-]+)\]'", text)[1].split(",")
    assert {"rest", "offline"} <= set(extras) <= set(known)
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE)[-1] == "10001"
    for words in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.+\])$", text, re.MULTILINE):
        assert json.loads(words)


@pytest.mark.rest
def test_what_the_files_start_is_a_command(tmp_path):
    """The options in them are those of ``sqlrag serve``."""
    commands = [" ".join(json.loads(re.search(r"^CMD (\[\"serve.+\])$", (DEPLOY / "Dockerfile").read_text(), re.M)[1]))]
    commands.append(re.search(r"command: (serve .+)", (DEPLOY / "compose.yml").read_text())[1])
    commands.append(re.search(r"bin/sqlrag (serve .+)", (DEPLOY / "sqlrag.service").read_text())[1])
    help_text = checked(sys.executable, "-m", "sqlrag", "serve", "--help", PYTHONPATH=str(ROOT))
    for command in commands:
        options = re.findall(r"--[a-z-]+", command)
        assert "--access-log" in options
        assert all(re.search(rf"{option}\b", help_text) for option in options), command
