"""A plan as a picture: streams on the left, the operator, the result. SVG, readable on light and dark backgrounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from watersmeet.cost import memory
from watersmeet.cost.parameters import Parameters
from watersmeet.model import durations
from watersmeet.optimizer.adaptive import format_orders
from watersmeet.optimizer.plan import JoinPlan

#: Pixels: height of a line, width of a letter in both sizes, space inside a box and between boxes.
LINE, LETTER, TITLE_LETTER, PAD, GAP = 18, 7.0, 8.6, 12, 22
ARROW = 70

STYLE = """
text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #333 }
.title { font-size: 14px; font-weight: 600; fill: #111 }
.box { fill: #fff; stroke: #8a8f98; rx: 6 }
.operator { stroke: #2f6fde; stroke-width: 2 }
.arrow { stroke: #8a8f98; stroke-width: 1.5; fill: none }
.head { fill: #8a8f98 }
@media (prefers-color-scheme: dark) {
  text { fill: #c9ccd1 } .title { fill: #fff }
  .box { fill: #1d2026 } .operator { stroke: #7aa7ff }
}
"""


def picture(plan: JoinPlan, p: Parameters) -> str:
    """The SVG of a plan for streams with these statistics: rates, retention, state, order, cost."""
    streams = [_stream_lines(plan, p, i) for i in range(len(p.streams))]
    operator, result = _operator_lines(plan, p), ["result", f"about {plan.results:,.4g} rows/s"]
    widths = [max(map(_width, streams)), _width(operator), _width(result)]
    heights = [_height(lines) for lines in streams]
    whole = max(sum(heights) + GAP * (len(streams) - 1), _height(operator))
    lefts = [GAP, GAP + widths[0] + ARROW, GAP + widths[0] + widths[1] + 2 * ARROW]
    size = (lefts[2] + widths[2] + GAP, whole + 2 * GAP)
    view = {"width": f"{size[0]:.0f}", "height": f"{size[1]:.0f}", "viewBox": f"0 0 {size[0]:.0f} {size[1]:.0f}"}
    svg = ET.Element("svg", view | {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
    ET.SubElement(svg, "title").text = f"{plan.algorithm} of {', '.join(s.name for s in p.streams)}"
    ET.SubElement(svg, "style").text = STYLE
    middle = GAP + whole / 2
    top = middle - (sum(heights) + GAP * (len(streams) - 1)) / 2
    for lines, height in zip(streams, heights, strict=True):
        _box(svg, lefts[0], top, widths[0], lines)
        _arrow(svg, lefts[0] + widths[0], top + height / 2, lefts[1], middle)
        top += height + GAP
    _box(svg, lefts[1], middle - _height(operator) / 2, widths[1], operator, "box operator")
    _arrow(svg, lefts[1] + widths[1], middle, lefts[2], middle)
    _box(svg, lefts[2], middle - _height(result) / 2, widths[2], result)
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _stream_lines(plan: JoinPlan, p: Parameters, i: int) -> list[str]:
    s = p.streams[i]
    others = " and ".join(o.name for o in p.others(i))
    kept = memory.retention(p, i)
    ends = [_duration(kept)] if math.isfinite(kept) else []
    ends += [f"until {others} close{'s' if len(p.streams) == 2 else ''} its key"] if memory.closed_rate(p, i) else []
    return [
        s.name,
        f"{s.rate:,.4g} rows/s, {s.distinct:,.0f} keys",
        f"kept {', or '.join(ends) or f'until {others} ended'}",
        f"about {plan.tuples[i]:,.0f} tuples, {'scanned' if plan.indexes[i] == 'scan' else 'by hash'}",
    ]


def _operator_lines(plan: JoinPlan, p: Parameters) -> list[str]:
    lines = [f"{plan.algorithm} (chosen by name)" if plan.forced else plan.algorithm]
    if len(p.streams) > 2:
        lines += [f"meet {order}" for order in format_orders(p, plan.orders).split("; ")]
    if plan.invalidation:
        lines.append(f"invalidation: {plan.invalidation}")
    lines.append(f"{plan.shards} shard{'s' if plan.shards != 1 else ''}")
    lines.append(f"{plan.bytes / 1e6:,.1f} MB, {plan.cpu / 1e9:.1%} of a core")
    return lines + [f"⚠ {warning}" for warning in plan.warnings]


def _duration(seconds: float) -> str:
    """As a duration such as "5 minutes" for whole seconds, else a decimal number of seconds."""
    micros = round(seconds * 1e6)
    return durations.formatted(micros) if micros % 1_000_000 == 0 else f"{seconds:.3g} seconds"


def _width(lines: Sequence[str]) -> float:
    return 2 * PAD + max([TITLE_LETTER * len(lines[0]), *(LETTER * len(line) for line in lines[1:])])


def _height(lines: Sequence[str]) -> float:
    return 2 * PAD + LINE * len(lines)


def _box(svg: ET.Element, x: float, y: float, width: float, lines: Sequence[str], kind: str = "box") -> None:
    bounds = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{_height(lines):.1f}"}
    ET.SubElement(svg, "rect", {"class": kind} | bounds)
    for n, line in enumerate(lines):
        at = {"x": f"{x + PAD:.1f}", "y": f"{y + PAD + LINE * (n + 0.75):.1f}"}
        ET.SubElement(svg, "text", at if n else at | {"class": "title"}).text = line


def _arrow(svg: ET.Element, x: float, y: float, to_x: float, to_y: float) -> None:
    half = (x + to_x) / 2
    curve = f"M {x:.1f} {y:.1f} C {half:.1f} {y:.1f} {half:.1f} {to_y:.1f} {to_x - 7:.1f} {to_y:.1f}"
    ET.SubElement(svg, "path", {"class": "arrow", "d": curve})
    head = f"M {to_x:.1f} {to_y:.1f} l -8 -4 v 8 z"
    ET.SubElement(svg, "path", {"class": "head", "d": head})
