"""What mkdocs calls while it builds the site: pages that lie elsewhere than in docs/, and links as they are in the clone.

A page is written for the code host, where links lead to files of the clone. On the site a link to another page leads to
that page, and one to another file to a copy of it. Folders have no page: of a link to one the text is left.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = {
    "index.md": "README.md",
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "peers.md": "bench/peers/README.md",
}
API = "api.md"
SHOWN_AS_IS = {".png", ".svg", ".json", ".csv", ".html"}  # by browsers; others need to be called text

# Of the compiled module, whose docstrings are not in a source file.
COMPILED = {
    "ConfigError": "A mistake in what was asked for: names the key, the value and what is accepted. A `ValueError`.",
    "RunError": "A run that cannot continue, for example because the disk is full. A `RuntimeError`.",
    "version": "The version of the package.",
}

CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((<?)([^)\s>]+)>?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leaves the pages out of the navigation that do not exist."""
    for section in config.nav:
        for name, pages in section.items():
            section[name] = [page for page in pages if page == API or source_of(page).exists()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that do not lie in docs/."""
    for page, source in ELSEWHERE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, API, content=api_page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links into those of the site, outside of code."""
    folder = source_of(page.file.src_uri).parent
    out, position = [], 0
    for code in CODE.finditer(markdown):
        out += [translated(markdown[position : code.start()], folder, config, files), code[0]]
        position = code.end()
    return "".join([*out, translated(markdown[position:], folder, config, files)])


def source_of(page: str) -> Path:
    return ROOT / ELSEWHERE.get(page, f"docs/{page}")


def translated(text: str, folder: Path, config: MkDocsConfig, files: Files) -> str:
    def one(link: re.Match[str]) -> str:
        mark, words, _, target = link.groups()
        path, hash_sign, anchor = target.partition("#")
        if not path or re.match(r"[a-z][a-z0-9+.-]*:", target, re.IGNORECASE):
            return link[0]
        found = (folder / unquote(path)).resolve()
        if found.is_dir():
            return words
        return f"{mark}[{words}]({place_of(found, config, files)}{hash_sign}{anchor})"

    return LINK.sub(one, text)


def place_of(path: Path, config: MkDocsConfig, files: Files) -> str:
    """Where the site has a file of the clone; makes a copy of what is no page."""
    name = path.relative_to(ROOT).as_posix()
    for page, source in ELSEWHERE.items():
        if source == name:
            return page
    if path.parent == ROOT / "docs" or not path.is_file():  # mkdocs says which link is broken
        return path.name
    place = f"clone/{name}" + ("" if path.suffix in SHOWN_AS_IS else ".txt")
    if files.get_file_from_path(place) is None:
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return place


def public_names() -> dict[str, list[str]]:
    """The table of gipo/__init__.py: the public names of each module. Read, not imported: nothing has to be built."""
    tree = ast.parse((ROOT / "python/gipo/__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_PUBLIC":
            return ast.literal_eval(node.value)
    raise RuntimeError("python/gipo/__init__.py has no table _PUBLIC")


def api_page() -> str:
    parts = [
        "# Python API",
        "Every public name of the package, from its docstrings. [Python](python.md) is the tour. "
        "Each is used as `gipo.NAME`; the heading has the module that defines it.",
    ]
    for module, names in public_names().items():
        parts.append(f"## {module.removeprefix('gipo.').lstrip('_').capitalize()}")
        if module == "gipo._core":
            parts += [f"### `gipo.{name}` {{ #gipo.{name} }}\n\n{COMPILED[name]}" for name in names]
        else:
            parts += [f"::: {module}.{name}" for name in names]
    return "\n\n".join(parts) + "\n"
