# SPDX-License-Identifier: Apache-2.0
"""
Tables for notebooks: HTML that needs no style sheet, no script and no font

Colours are the page's own, and greys that are half transparent: the same text is read on a
light page and on a dark one.  Everything that comes from a dump is escaped here.
"""
from __future__ import annotations

import html
from typing import Any, Iterable, List, Sequence

MOST = 50                       # rows that are shown
_TABLE = "border-collapse:collapse;margin:.3em 0"
_CELL = "padding:1px 8px;border-top:1px solid rgba(128,128,128,.4);"


def _cell(value: Any, tag: str = "td") -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    words = f"{value:.6g}" if isinstance(value, float) else str(value)
    side = "right" if number else "left"
    return f'<{tag} style="{_CELL}text-align:{side}">{html.escape(words)}</{tag}>'


def table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Numbers to the right; more than MOST rows are counted."""
    rows = [list(row) for row in rows]
    if not rows:
        return ""
    out = [f'<table style="{_TABLE}"><thead><tr>']
    out += [_cell(name, "th") for name in names]
    out.append("</tr></thead><tbody>")
    for row in rows[:MOST]:
        out.append("<tr>" + "".join(_cell(value) for value in row) + "</tr>")
    out.append("</tbody></table>")
    return "".join(out) + line(f"and {len(rows) - MOST} more" if len(rows) > MOST else "")


def line(words: str, strong: str = "") -> str:
    """A line of text behind a part of it that is strong; nothing of nothing."""
    parts: List[str] = [f"<b>{html.escape(strong)}</b>"] if strong else []
    parts += [html.escape(words)] if words else []
    return f"<div>{' '.join(parts)}</div>" if parts else ""
