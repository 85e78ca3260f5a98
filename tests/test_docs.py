"""The documentation says what the program does, and its links lead somewhere."""

import os
import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / os.environ.get("GIPO_BUILD_DIR", "build/release")
GENERATED = {"build", "runs", "demo", "results"}


def pages():
    """Every Markdown page of the repository, leaving out what builds and runs make."""
    found = []
    for path in ROOT.rglob("*.md"):
        folders = path.relative_to(ROOT).parts[:-1]
        if not any(part.startswith(".") for part in folders) and (folders[:1] or ("",))[0] not in GENERATED:
            found.append(path)
    return sorted(found)


def link_targets(text):
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    inline = re.findall(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)", text)
    reference = re.findall(r"^\[[^\]]+\]:\s*(\S+)", text, flags=re.MULTILINE)
    html = re.findall(r"<(?:img|a)\s[^>]*?(?:src|href)=\"([^\"]+)\"", text)
    return inline + reference + html


@pytest.mark.parametrize("what, name", [("options", "options.md"), ("envs", "tasks.md"), ("zoo", "zoo.md")])
def test_page_is_up_to_date(what, name):
    binary = BUILD / "gipo"
    page = ROOT / "docs" / name
    printed = subprocess.run([binary, "list", what, "--markdown"], check=True, stdout=subprocess.PIPE).stdout
    assert page.read_bytes() == printed, f"out of date: {binary} list {what} --markdown > {page}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    broken = []
    for target in link_targets(page.read_text()):
        path = unquote(target.split("#")[0])
        if not path or re.match(r"[a-z][a-z0-9+.-]*:", target, re.IGNORECASE):
            continue
        if not (page.parent / path).exists():
            broken.append(target)
    assert broken == []
