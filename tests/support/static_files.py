"""A server of plain files with ranges, as static hosts are."""

from __future__ import annotations

import re
from http.server import SimpleHTTPRequestHandler
from pathlib import Path


class Files(SimpleHTTPRequestHandler):
    """Serves a folder with ranges, as static hosts do, and counts the bytes of the search file."""

    protocol_version = "HTTP/1.1"
    sent = 0
    requests = 0

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if path.suffix != ".duckdb":
            return super().do_GET() if self.command == "GET" else super().do_HEAD()
        size = path.stat().st_size
        first, last = (int(asked[1]), min(int(asked[2] or size), size - 1)) if asked else (0, size - 1)
        self.send_response(206 if asked else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.send_header("Content-Length", str(last - first + 1))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.end_headers()
        if self.command == "HEAD":
            return None
        with path.open("rb") as file:
            file.seek(first)
            self.wfile.write(file.read(last - first + 1))
        Files.sent += last - first + 1
        Files.requests += 1
        return None
