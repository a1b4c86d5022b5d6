"""An HTTP server on this machine, in a thread, for as long as a block lasts."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def served(handler, ended):
    """Serve with a handler class and yield the address; ``ended`` is set first, so that requests that hang give up."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.daemon_threads = True
    http.handle_error = lambda *_: None
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}"
    finally:
        ended.set()
        http.shutdown()
        http.server_close()
        thread.join()


# Answers that end before their end.
CUTS = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-",
    "half a body": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"data": [',
    "half a chunk": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
}


@contextmanager
def cutting(answer):
    """Serve the address of a server that answers each request with these bytes and closes the connection."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.wfile.write(answer)
            self.close_connection = True

        def log_message(self, *_):
            pass

    with served(Handler, threading.Event()) as address:
        yield address
