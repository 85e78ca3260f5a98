"""`gipo watch`: serves a page on this machine that follows training runs."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib.util
import json
import os
import sys
import threading
import webbrowser
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gipo.runs import Record, UserMistake
from gipo.watch_answers import Watched, Watcher

HOST, DEFAULT_PORT = "127.0.0.1", 6007
BODY_BYTES = 1 << 20  # of a request
PAGE_FILES = {"/": ("watch.html", "text/html"), "/watch.css": ("watch.css", "text/css"), "/watch.js": ("watch.js", "text/javascript")}


def plotly_script() -> Path:
    """The script of the plots, which the package plotly holds; the package itself is not loaded."""
    found = importlib.util.find_spec("plotly")
    script = Path(found.origin).parent / "package_data" / "plotly.min.js" if found and found.origin else None
    if script is None or not script.is_file():
        raise UserMistake(f"gipo watch needs the package plotly, which {sys.executable} does not have: pip install 'gipo[watch]', or pip install plotly")
    return script


def make_handler(watcher: Watcher, script: Path) -> type[BaseHTTPRequestHandler]:
    folder = Path(__file__).parent

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if not self._from_here():
                return
            if path == "/plotly.js":
                self._send(script.read_bytes(), "text/javascript", cached=True)
            elif path in PAGE_FILES:
                name, kind = PAGE_FILES[path]
                self._send((folder / name).read_bytes(), kind)
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def do_POST(self) -> None:
            if not self._from_here():
                return
            try:
                size = int(self.headers.get("Content-Length", ""))
                request = json.loads(self.rfile.read(size)) if 0 <= size <= BODY_BYTES else None
            except (ValueError, RecursionError):
                request = None
            if not isinstance(request, dict):
                self.close_connection = True
                self.send_error(HTTPStatus.BAD_REQUEST)
            elif self.path == "/data":
                self._json(watcher.answer(request))
            elif self.path == "/multiplier":
                self._json(watcher.multiplier(str(request.get("run"))))
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _from_here(self) -> bool:
            """A page of another site must not read the runs through a name that it points at this machine."""
            host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            if host in ("127.0.0.1", "localhost"):
                return True
            self.close_connection = True
            self.send_error(HTTPStatus.FORBIDDEN)
            return False

        def _json(self, value: Record) -> None:
            self._send(json.dumps(value, separators=(",", ":"), allow_nan=False).encode(), "application/json")

        def _send(self, body: bytes, kind: str, cached: bool = False) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "max-age=86400" if cached else "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A page that was closed meanwhile is no error."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


def make_server(path: Path, port: int) -> Server:
    script = plotly_script()
    watched = Watched(path)
    try:
        server = Server((HOST, port), BaseHTTPRequestHandler)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "is taken by another program" if error.errno == errno.EADDRINUSE else "is not allowed to this user"
        raise UserMistake(f"port {port} {why}: choose another with --port, or --port 0 for any that is free") from error
    server.RequestHandlerClass = make_handler(Watcher(watched), script)
    return server


def open_browser(url: str) -> None:
    """Where there is a screen: elsewhere a browser of the terminal would take it over."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gipo watch")
    parser.add_argument("path", type=Path, nargs="?", default=Path("runs"))
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--no-browser", action="store_true")
    options = parser.parse_args(arguments)
    try:
        server = make_server(options.path, options.port)
    except UserMistake as error:
        print(f"gipo: {error}", file=sys.stderr)
        return 2
    with contextlib.suppress(OSError):
        os.nice(10)  # training comes first
    url = f"http://{HOST}:{server.server_address[1]}/"
    print(f"{url} shows {options.path}; Ctrl-C ends it", flush=True)
    if not options.no_browser:
        open_browser(url)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
