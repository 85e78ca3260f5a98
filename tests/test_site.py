"""The site that `make docs` builds: every page in a section, no broken link, nothing from other hosts, and search."""

import http.server
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading

import pytest
from conftest import HANG, ROOT

pytest.importorskip("mkdocs", reason="scripts/setup.sh --docs installs it")

# A page of the site in a frame of some width, and what a reader would see there. What it measured goes back by a request.
PROBE = """<!doctype html><link rel="icon" href="data:,"><iframe src="{page}" style="width: {width}px; height: 900px">
</iframe><script>
const frame = document.querySelector("iframe");
const look = () => {{
  const page = frame.contentDocument, found = [...page.querySelectorAll("a.md-search-result__link")];
  if (found.length === 0) return setTimeout(look, 100);
  const root = page.documentElement;
  const measured = {{scroll: root.scrollWidth, room: root.clientWidth, found: found.map(a => a.getAttribute("href")),
    images: [...page.images].map(image => image.complete && image.naturalWidth > 0)}};
  fetch("/report", {{method: "POST", body: JSON.stringify(measured)}});
}};
frame.onload = look;
</script>"""


def build(config, out):
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", out],
        capture_output=True, text=True, timeout=HANG, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", out)
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_there(site):
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"index", "architecture", "contributing", "api"}
    assert [page for page in sorted(pages) if not (site / f"{page}.html").exists()] == []


def test_light_and_dark_can_be_chosen(site):
    schemes = re.findall(r'<input[^>]*data-md-color-scheme="(\w+)"', (site / "index.html").read_text())
    assert schemes == ["default", "slate"]


def test_api_page_has_every_public_name(site):
    import gipo

    text = (site / "api.html").read_text()
    assert [name for name in gipo.__all__ if not re.search(rf'id="gipo\.(\w+\.)?{name}"', text)] == []


def test_nothing_comes_from_another_host(site):
    wrong = []
    for path in site.rglob("*"):
        if path.suffix not in {".html", ".css"}:
            continue
        text = path.read_text()
        wrong += re.findall(r"<(?:script|img|iframe|source)[^>]*src=\"?(?:https?:)?//[^>]*", text)
        wrong += re.findall(r"<link[^>]*rel=\"?(?!canonical)[^>]*href=\"?(?:https?:)?//[^>]*", text)
        wrong += re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)]*", text)
    assert wrong == []


@pytest.mark.parametrize("fault", ["a page in no section", "a broken link", "a broken anchor"])
def test_faults_fail_the_build(tmp_path, fault):
    for name in ("docs", "scripts", "python"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "LICENSE", "bench/peers/README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    # Other files of the clone are not copied; links to them are no part of this test.
    for page in tmp_path.glob("**/*.md"):
        page.write_text(re.sub(r"\]\((?:\.\./(?:configs|suites|results|src)/|requirements)[^)]*\)", "](#)", page.read_text()))
    stray = tmp_path / "docs" / "stray.md"
    if fault == "a page in no section":
        stray.write_text("# Stray\n")
    else:
        target = "nowhere.md" if fault == "a broken link" else "options.md#nowhere"
        with (tmp_path / "docs" / "study.md").open("a") as page:
            page.write(f"\n[text]({target})\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert ("stray.md" if stray.exists() else "nowhere") in done.stderr


class Handler(http.server.SimpleHTTPRequestHandler):
    reports: queue.Queue = queue.Queue()

    def do_POST(self):
        self.reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server(site):
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *arguments: Handler(*arguments, directory=str(site))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium here")
@pytest.mark.parametrize("width", [1280, 390])
def test_search_in_a_browser(site, server, width, tmp_path):
    (site / "probe.html").write_text(PROBE.format(page="index.html?q=staleness", width=width))
    with (tmp_path / "messages").open("w+") as messages:
        browser = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
             f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1000", "--remote-debugging-port=0",
             f"http://127.0.0.1:{server.server_port}/probe.html"],
            stdout=subprocess.DEVNULL, stderr=messages,
        )  # fmt: skip
        try:
            measured = Handler.reports.get(timeout=120)
        finally:
            browser.terminate()
            browser.wait()
        messages.seek(0)
        said = [line for line in messages if "CONSOLE" in line]
    assert said == []
    assert any("concepts.html" in link for link in measured["found"])
    assert measured["scroll"] <= measured["room"] <= width  # nothing to push sideways
    assert measured["images"] and all(measured["images"])
