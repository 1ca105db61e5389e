"""The report's Markdown as one page of HTML, with its figures inside."""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
img { max-width: 100%; } table { border-collapse: collapse; font-size: 13px; }
td, th { border: 1px solid #d1d5db; padding: .25rem .5rem; text-align: left; vertical-align: top; }
h2 { margin-top: 2.5rem; border-top: 1px solid #d1d5db; padding-top: 1rem; }
code { background: #f3f4f6; padding: 0 .2em; }
@media print { img, tr { break-inside: avoid; } a { color: inherit; text-decoration: none; } }
"""


def html_of(text: str, title: str, folder: Path) -> str:
    """Headings, paragraphs, lists, tables and figures: the parts of Markdown that the report uses."""
    blocks = [_block(block, folder) for block in text.strip().split("\n\n")]
    body = "\n".join(blocks)
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _block(block: str, folder: Path) -> str:
    lines = block.split("\n")
    if block.startswith("<a "):
        return block
    if heading := re.fullmatch(r"(#+) (.*)", block):
        level = len(heading[1])
        return f"<h{level}>{_inline(heading[2])}</h{level}>"
    if figure := re.fullmatch(r"!\[(.*)\]\((.*)\)", block):
        data = base64.b64encode((folder / figure[2]).read_bytes()).decode()
        return f'<img alt="{html.escape(figure[1])}" src="data:image/svg+xml;base64,{data}">'
    if block.startswith("|"):
        cells = [[_inline(c.strip()) for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
        head = "".join(f"<th>{c}</th>" for c in cells[0])
        rows = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>\n" for row in cells[2:])
        return f"<table><tr>{head}</tr>\n{rows}</table>"
    if block.startswith("- "):
        return "<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in lines) + "</ul>"
    return f"<p>{_inline(' '.join(lines))}</p>"


def _inline(text: str) -> str:
    text = html.escape(text.replace("\\|", "|"), quote=False)
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    text = re.sub(r"(?<!\w)\*(.+?)\*", r"<em>\1</em>", text)
    text = re.sub(r"`(.+?)`", r"<code>\1</code>", text)
    return re.sub(r"\[(.+?)\]\((.+?)\)", r'<a href="\2">\1</a>', text)
