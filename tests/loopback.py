"""An HTTP server on this machine, in a thread, for as long as a block lasts."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer


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
