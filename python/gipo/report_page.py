"""The HTML page of a report: one file, images inside, readable on a phone and in print."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from html import escape

from matplotlib.figure import Figure

from gipo.report_data import Suite

CSS = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 16px; color: #1a1a1a; background: #fff;
       font: 16px/1.5 system-ui, sans-serif; }
h1 { margin: 0 0 4px; font-size: 1.6rem; overflow-wrap: anywhere; }
h2 { margin: 40px 0 8px; padding-top: 8px; border-top: 1px solid #d0d0d0; font-size: 1.2rem; }
h3 { margin: 24px 0 4px; font-size: 1rem; }
p.data { margin: 4px 0 12px; color: #555; font-size: 0.85rem; overflow-wrap: anywhere; }
nav a { display: inline-block; margin: 2px 14px 2px 0; color: #00568a; }
figure { margin: 0; }
.image, .table { overflow-x: auto; }
img { display: block; width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 12px 4px 0; border-bottom: 1px solid #e4e4e4; text-align: right; white-space: nowrap; }
th:first-child, td:first-child, th.word, td.word { text-align: left; }
thead th { border-bottom: 2px solid #888; }
@media print { nav { display: none; } h2 { break-after: avoid; } figure { break-inside: avoid; } body { font-size: 11px; }
               img { min-width: 0 !important; } }
"""


@dataclass(frozen=True)
class Picture:
    """A figure of the page: file name without suffix, heading, what it is made of, and the figure."""

    name: str
    title: str
    data: str
    figure: Figure


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    data: str
    rows: list[list[str]]  # the first is the head


def table_html(table: Table) -> str:
    def row(cells: list[str], tag: str) -> str:
        word = [' class="word"' if i == 1 and table.rows[0][0] == "rank" else "" for i in range(len(cells))]
        return "<tr>" + "".join(f"<{tag}{w}>{escape(c)}</{tag}>" for w, c in zip(word, cells)) + "</tr>"

    body = "".join(row(cells, "td") for cells in table.rows[1:])
    return (f"<h3>{escape(table.title)}</h3><p class='data'>{escape(table.data)}; {table.name}.csv, {table.name}.tex</p>"
            f"<div class='table' tabindex='0'><table><thead>{row(table.rows[0], 'th')}</thead><tbody>{body}</tbody></table></div>")


def picture_html(picture: Picture, image: bytes) -> str:
    data = base64.b64encode(image).decode()
    inches = picture.figure.get_figwidth()
    # Narrower, its text cannot be read, and the box scrolls; wider, one panel would fill the screen.
    size = f"min-width:{85 * inches:.0f}px;max-width:{140 * inches:.0f}px"
    return (f"<section id='{picture.name}'><h2>{escape(picture.title)}</h2><figure>"
            f"<div class='image' tabindex='0'><img style='{size}' alt='{escape(picture.title, quote=True)}' src='data:image/png;base64,{data}'></div>"
            f"<figcaption><p class='data'>{escape(picture.data)}; {picture.name}.png, {picture.name}.svg</p></figcaption>"
            "</figure></section>")


def page(suite: Suite, pictures: list[Picture], images: dict[str, bytes], tables: list[Table]) -> str:
    links = "".join(f"<a href='#{p.name}'>{escape(p.title)}</a>" for p in pictures)
    missing = f" {len(suite.missing)} runs are missing: {', '.join(suite.missing[:10])}{' …' if len(suite.missing) > 10 else ''}." if suite.missing else ""
    faults = suite.faults()
    damaged = f" {len(faults)} damaged lines or files were left out: {'; '.join(faults[:10])}{' …' if len(faults) > 10 else ''}." if faults else ""
    intro = (f"{len(suite.tasks)} tasks, {len(suite.methods)} methods, regimes: {', '.join(suite.regimes)}; "
             f"{suite.data(suite.rows)}.{missing}{damaged}")
    return (f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(suite.name)}</title>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            f"<link rel='icon' href='data:,'><style>{CSS}</style></head><body>"
            f"<h1>{escape(suite.name)}</h1><p class='data'>{escape(intro)}</p>"
            f"<nav><a href='#tables'>Tables</a>{links}</nav>"
            + "".join(picture_html(p, images[p.name]) for p in pictures)
            + "<section id='tables'><h2>Tables</h2>" + "".join(map(table_html, tables)) + "</section></body></html>\n")
