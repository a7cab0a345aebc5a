"""Pictures of graphs: Graphviz lays the stones out, from left to right, and a notebook shows the SVG.

Stones of one node stand in a frame with its name; a link that crosses from node to node is dashed.
What a user wrote (names, sources, nodes) stands in HTML-like labels only, escaped, and never as an
identifier of Graphviz; so no text can change the picture's structure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from tempfile import TemporaryFile
from textwrap import wrap
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from evflow.errors import CodeError, GraphError
from evflow.graph.kinds import Absent, own_kind

if TYPE_CHECKING:
    from evflow.graph.graph import Graph, Link
    from evflow.stone import Stone

Stats = Mapping[str, Mapping[str, float]]
"""What ``Flow.stats`` gives: stone → count → number."""

ENDINGS = (".svg", ".png", ".pdf")

_FONT = "Helvetica,Arial,sans-serif"
_CODE_FONT = "Menlo,Consolas,monospace"
_TEXT, _FAINT, _RED = "#1f2933", "#6b7785", "#c62828"
_LINE = 32

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)

# Graphviz has global state.
_lock = Lock()

# What XML 1.0 cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Look(NamedTuple):
    """How a kind of stone is drawn: shape, line and fill."""

    shape: str
    line: str
    fill: str
    margin: str = "0.1,0.06"


_LOOKS: dict[str, Look] = {
    "source": Look("cds", "#2f855a", "#eef8f1", "0.22,0.12"),
    "generator": Look("cds", "#2f855a", "#eef8f1", "0.22,0.12"),
    "filter": Look("box", "#2b6cb0", "#eef5fc"),
    "transform": Look("component", "#6b46c1", "#f5f1fd"),
    "router": Look("octagon", "#b7791f", "#fdf7e8", "0,0"),
    "split": Look("box", "#718096", "#f5f7fa"),
    "queue": Look("box3d", "#0e7490", "#ebf8fa"),
    "match": Look("hexagon", "#b7791f", "#fdf7e8", "0.05,0"),
    "storage": Look("cylinder", "#975a16", "#faf3ea"),
    "bridge": Look("cds", "#b83280", "#fdf2f8", "0.22,0.1"),
    "terminal": Look("box", "#4a5568", "#ffffff"),
}
_OTHER = Look("box", "#4a5568", "#f5f7fa")


class Live(NamedTuple):
    """What is known of a graph that runs now.

    Attributes:
        rates: stone → "in" and "out" → events a second.
        notes: stone → what else is to be said of it.
        captions: node → what stands at its frame, instead of its name.
        dead: the nodes that are dead.
    """

    rates: Stats
    notes: Mapping[str, str]
    captions: Mapping[str, str]
    dead: frozenset[str]


_STILL = Live({}, {}, {}, frozenset())


class Picture:
    """A drawn graph; a notebook shows it by itself.

    Attributes:
        svg: the picture as an SVG document.
    """

    def __init__(self, dot: str, svg: str) -> None:
        self._dot = dot
        self.svg = svg

    def save(self, path: str | Path) -> None:
        """Writes the picture to a file.

        Args:
            path: where to; its ending says as what: ``.svg``, ``.png`` or ``.pdf``.

        Raises:
            GraphError: it has another ending, or cannot be written.
        """
        path = Path(path)
        ending = path.suffix.lower()
        if ending not in ENDINGS:
            raise GraphError(f"picture {str(path)!r}: expected a name that ends in {', '.join(ENDINGS)}")
        data = self.svg.encode() if ending == ".svg" else _render(self._dot, ending[1:])
        try:
            path.write_bytes(data)
        except OSError as error:
            raise GraphError(f"picture {str(path)!r} cannot be written: {error.strerror}") from error

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture: {len(self.svg)} characters of SVG>"


def draw(
    graph: Graph, path: str | Path | None = None, stats: Stats | None = None, live: Live = _STILL
) -> Picture:
    """A picture of a graph: stones with their functions, links, and nodes as frames.

    Args:
        graph: the graph; it need not be complete.
        path: a file to write the picture to; see ``Picture.save``.
        stats: the counts of ``Flow.stats``, to be shown with the stones and links.
        live: what else is known of it while it runs.

    Raises:
        GraphError: the library for the layout is not installed, or ``path`` cannot be written.
    """
    dot = _dot(graph, stats or {}, live)
    svg = re.sub(r"<title>[^<]*</title>\n?", "", _render(dot, "svg").decode())
    # Without its prologue a page can hold it as it is; without titles a browser shows tooltips only.
    picture = Picture(dot, svg[svg.index("<svg") :])
    if path is not None:
        picture.save(path)
    return picture


def _render(dot: str, kind: str) -> bytes:
    try:
        from pygraphviz import AGraph
    except ImportError:
        raise GraphError(
            "drawing a graph needs the package pygraphviz, which is not installed: pip install 'evflow[demo]'"
        ) from None
    with _lock, _without_font_warnings():
        graph = AGraph(dot)
        # Finer than the 96 dpi of a screen, so that an enlarged picture stays sharp.
        if kind == "png":
            graph.graph_attr["dpi"] = "144"
        drawn: bytes = graph.draw(format=kind, prog="dot")
    return drawn


@contextmanager
def _without_font_warnings() -> Iterator[None]:
    # The font library complains of the system's own settings, straight to the standard error.
    with TemporaryFile() as caught:
        error = os.dup(2)
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(error, 2)
            os.close(error)
            caught.seek(0)
            os.write(2, b"".join(line for line in caught if not line.startswith(b"Fontconfig")))


def _dot(graph: Graph, stats: Stats, live: Live) -> str:
    ids = {name: f"n{number}" for number, name in enumerate(graph.stones)}
    frames = list(dict.fromkeys(stone.on for stone in graph.stones.values()))
    lines = [
        "digraph {",
        f'graph [rankdir=LR bgcolor=white nodesep=0.28 ranksep=0.5 pad=0.2 fontname="{_FONT}"];',
        f'node [fontname="{_FONT}" fontsize=12 fontcolor="{_TEXT}" style="filled,rounded" penwidth=1.3];',
        f'edge [fontname="{_FONT}" fontsize=10 fontcolor="{_FAINT}" color="#9aa5b1" arrowsize=0.7];',
    ]
    for number, frame in enumerate(frames):
        nodes = [
            _node(ids[name], name, stone, stats.get(name, {}), live)
            for name, stone in graph.stones.items()
            if stone.on == frame
        ]
        lines += nodes if frame is None else _cluster(number, frame, nodes, live)
    lines += [
        _edge(ids[link.source], ids[link.target], link, graph, stats, live)
        for link in graph.links
        if link.source in ids and link.target in ids
    ]
    return "\n".join([*lines, "}"])


def _cluster(number: int, name: str, nodes: list[str], live: Live) -> list[str]:
    line, colour = (_RED, _RED) if name in live.dead else ("#b8c2cc", _FAINT)
    caption = _font(live.captions.get(name, name), 11, colour)
    return [
        f"subgraph cluster_{number} {{",
        f'style="rounded,dashed"; color="{line}"; margin=14; label=<{caption}>;',
        *nodes,
        "}",
    ]


def _node(id_: str, name: str, stone: Stone, counts: Mapping[str, float], live: Live) -> str:
    look = _LOOKS.get(own_kind(stone), _OTHER)
    about = _about(stone)
    face = _CODE_FONT if _code(stone) else ""
    rows = [
        f"<b>{_clean(_shorten(name))}</b>",
        _font(stone.kind, 10, look.line),
        *(_font(line, 10, _FAINT, face) for line in _excerpt(about)),
        *_counts(own_kind(stone), counts),
        *_alive(live.rates.get(name), live.notes.get(name, "")),
    ]
    label = "".join(f"<tr><td>{row}</td></tr>" for row in rows)
    tooltip = _quoted(f"{name}\n{about}" if about else name)
    return (
        f'{id_} [shape={look.shape} margin="{look.margin}" color="{look.line}" fillcolor="{look.fill}" '
        f"tooltip={tooltip} "
        f'label=<<table border="0" cellborder="0" cellspacing="0" cellpadding="1">{label}</table>>];'
    )


def _code(stone: Stone) -> str:
    code = getattr(stone, "code", "")
    if isinstance(code, str):
        return code
    from evflow.codgen.front import source_of

    try:
        return source_of(code)
    except CodeError:
        return f"{getattr(code, '__name__', 'function')}()"


def _about(stone: Stone) -> str:
    """A function's source, or what else there is to say of a stone."""
    if code := _code(stone):
        return code
    # Not imported for a picture: another host may have what it names.
    if handlers := vars(stone).get("_handlers"):
        return ", ".join(map(_handler_name, handlers.values()))
    kind = "" if isinstance(stone, Absent) else own_kind(stone)
    if kind == "bridge":
        return _bridge_text(stone)
    if kind == "match":
        return _match_text(stone)
    if (limit := getattr(stone, "limit", None)) is not None:
        return f"limit {limit:,}"
    return ""


def _handler_name(handler: object) -> str:
    if isinstance(handler, str):
        return handler.rpartition(":")[2]
    return str(getattr(handler, "__name__", type(handler).__name__))


def _bridge_text(stone: Stone) -> str:
    """Where a bridge leads out of the graph, and what of its terms is not the rule."""
    # By name, since stones stand above this module.
    said = vars(stone)
    parts = []
    if said["peer"] is not None:
        parts.append(f"to {said['stone']} of {said['peer']}")
    if said["delivery"] != "at_least_once":
        parts.append(said["delivery"].replace("_", " "))
    if said["policy"] != "block":
        parts.append(said["policy"])
    handler = said["congestion"]
    if handler is not None:
        compiled = isinstance(handler, str) and said["_inputs"] is not None
        parts.append("compiled handler" if compiled else _handler_name(handler))
    return ", ".join(parts)


def _match_text(stone: Stone) -> str:
    """What the graph itself subscribes."""
    said = vars(stone)
    given, file = said["given"], said["file"]
    subscribed = given[0].text if len(given) == 1 else f"{len(given):,} subscriptions" if given else ""
    return ", ".join(part for part in (subscribed, "" if file is None else f"file {file.name}") if part)


def _counts(kind: str, counts: Mapping[str, float]) -> list[str]:
    """The lines of numbers beneath a stone: what went through, and in red what did not."""
    if not counts:
        return []
    lines = []
    through = [f"{int(counts[key]):,} {key}" for key in ("in", "out") if counts.get(key)]
    if through:
        lines.append(_font("\xa0\xa0".join(through), 10, _TEXT))
    # What these drop they drop by intention.
    bad = (
        ("queued", "errors", "unmatched")
        if kind in ("filter", "match")
        else ("queued", "dropped", "errors", "unmatched")
    )
    trouble = [f"{int(counts[key]):,} {key}" for key in bad if counts.get(key)]
    if trouble:
        lines.append(_font("\xa0\xa0".join(trouble), 10, _RED))
    return lines


def _alive(rates: Mapping[str, float] | None, note: str) -> list[str]:
    """The lines that only a graph that runs has: events a second, and a note."""
    lines = []
    if rates is not None:
        said = "\xa0\xa0".join(f"{_per_second(rates[key])} {key}" for key in ("in", "out") if rates.get(key))
        lines.append(_font(said or "idle", 10, _TEXT if said else _FAINT))
    if note:
        lines.append(_font(_shorten(note), 10, _RED if note.startswith("frozen") else _FAINT))
    return lines


def _per_second(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


def _edge(start: str, end: str, link: Link, graph: Graph, stats: Stats, live: Live) -> str:
    labels = []
    source = graph.stones[link.source]
    kind = own_kind(source)
    if kind == "router" or link.port or (kind == "match" and vars(source).get("route")):
        labels.append(f"<b>{link.port}</b>")
    if link.input:
        labels.append(f"→ {_clean(_shorten(link.input))}")
    if (passed := _passed(link, graph, stats)) is not None:
        labels.append(f"{passed:,.0f}")
    if live.rates and (rate := _passed(link, graph, live.rates)):
        labels.append(_per_second(rate))
    settings = [f"label=<&#160;{'&#160;&#160;'.join(labels)}&#160;>"] if labels else []
    if _crosses(source, graph.stones[link.target]):
        settings.append(f'style=dashed penwidth=1.6 color="{_LOOKS["bridge"].line}"')
    more = f" [{' '.join(settings)}]" if settings else ""
    return f"{start} -> {end}{more};"


def _crosses(start: Stone, end: Stone) -> bool:
    return None not in (start.on, end.on) and start.on != end.on


def _passed(link: Link, graph: Graph, stats: Stats) -> float | None:
    """The events that went over a link, or do a second, where the stones' counts tell."""
    source, target = stats.get(link.source), stats.get(link.target)
    if source is None or target is None:
        return None
    if sum(other.target == link.target for other in graph.links) == 1:
        return target["in"]
    if own_kind(graph.stones[link.source]) == "split":
        return source["in"]
    if sum(other.source == link.source for other in graph.links) == 1:
        return source["out"]
    return None


def _shorten(text: str, width: int = 44) -> str:
    line = " ".join(text.split()) or "␣"
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def _excerpt(text: str) -> list[str]:
    """The first two lines of a function without comments, or a single line in two."""
    lines = [" ".join(line.split()) for line in _COMMENT.sub("", text).splitlines()]
    lines = [line for line in lines if line.strip("{} ")]
    if len(lines) < 2:
        return wrap("".join(lines), _LINE, max_lines=2, placeholder=" …")
    more = " …" if len(lines) > 2 else ""
    return [_shorten(line, _LINE + 6) for line in (lines[0], lines[1] + more)]


def _clean(text: str) -> str:
    # Graphviz replaces \\N and the like in such labels too.
    return escape(_NOT_XML.sub("�", text)).replace("\\", "\\\\")


def _font(text: str, size: int, colour: str, face: str = "") -> str:
    named = f' face="{face}"' if face else ""
    return f'<font point-size="{size}" color="{colour}"{named}>{_clean(text)}</font>'


def _quoted(text: str) -> str:
    # Graphviz reads entities in quoted text, and escapes twice: those of labels, then those of lines.
    kept = _NOT_XML.sub("�", text)[:2000].replace("&", "&amp;")
    kept = kept.replace("\\", "\\" * 4).replace('"', '\\"').replace("\r", "").replace("\n", "\\n")
    return f'"{kept}"'
