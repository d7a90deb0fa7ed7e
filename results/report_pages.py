"""A report as Markdown, as one HTML page that needs nothing else, and on disk."""

from __future__ import annotations

import base64
import html
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from results.report import Report
from results.report_json import report_json
from results.report_sections import ReportSection, report_sections
from results.store import StudyFolder
from results.table import markdown_table

logger = logging.getLogger(__name__)

_PLOT_WORDS = {
    "accept_length_and_throughput": "Throughput against accept length of every setting",
    "layouts": "Accept length by layout at one triple",
    "acceptance_by_position": "Acceptance by draft position",
}

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
tr.chosen td { font-weight: 600; background: #009e7322; }
pre { background: #8882; padding: .8rem 1rem; overflow-x: auto; border-radius: 4px; }
figure { margin: 1rem 0; } figure img { max-width: 100%; background: white; }
"""


def report_markdown(report: Report, *, plots: Mapping[str, str] | None = None) -> str:
    """Markdown text. `plots` maps names of plots to the addresses of their images."""
    parts = [f"# Study {report.study}"]
    for section in report_sections(report):
        parts.append(f"## {section.title}")
        parts += section.paragraphs
        if section.bullets:
            parts.append("\n".join(f"- {bullet}" for bullet in section.bullets))
        if section.rows:
            parts.append(markdown_table(section.columns, section.rows))
        if section.plotted:
            parts += [f"![{_PLOT_WORDS.get(name, name)}]({address})" for name, address in (plots or {}).items()]
        if section.code is not None:
            parts.append(f"```sh\n{section.code}\n```")
    return "\n\n".join(parts) + "\n"


def report_html(report: Report, *, images: Mapping[str, bytes] | None = None) -> str:
    """One page with its style and images inside; no script, nothing loaded from anywhere."""
    title = html.escape(f"Study {report.study}")
    body = [f"<h1>{title}</h1>"]
    for section in report_sections(report):
        body += _html_section(section)
        if section.plotted:
            body += [_figure(name, content) for name, content in (images or {}).items()]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
        f"<body>\n{chr(10).join(body)}\n</body></html>\n"
    )


def _html_section(section: ReportSection) -> list[str]:
    lines = [f"<h2>{html.escape(section.title)}</h2>"]
    lines += [f"<p>{html.escape(paragraph)}</p>" for paragraph in section.paragraphs]
    if section.bullets:
        lines += ["<ul>", *(f"<li>{html.escape(bullet)}</li>" for bullet in section.bullets), "</ul>"]
    if section.rows:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in section.columns)
        lines += ['<div class="scroll"><table>', f"<thead><tr>{head}</tr></thead><tbody>"]
        for row in section.rows:
            chosen = ' class="chosen"' if row[-1].endswith("(run this)") else ""
            lines.append(f"<tr{chosen}>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>")
        lines.append("</tbody></table></div>")
    if section.code is not None:
        lines.append(f"<pre>{html.escape(section.code)}</pre>")
    return lines


def _figure(name: str, content: bytes) -> str:
    words = html.escape(_PLOT_WORDS.get(name, name))
    data = base64.b64encode(content).decode()
    return f'<figure><img alt="{words}" src="data:image/png;base64,{data}"></figure>'


def write_report(report: Report, folder: StudyFolder, *, with_plots: bool = True) -> tuple[Path, ...]:
    """Write `report.md`, `report.html`, `report.json` and the plots into the study's folder; returns the paths.

    A plot that cannot be drawn is logged and left out: the numbers do not depend on it. EnvironmentProblem when a file
    cannot be written.
    """
    images = _images(report) if with_plots else {}
    names = {name: f"plot-{name.replace('_', '-')}.png" for name in images}
    contents: dict[Path, bytes | str] = {folder.path / names[name]: content for name, content in images.items()}
    contents[folder.report_path("md")] = report_markdown(report, plots=names)
    contents[folder.report_path("html")] = report_html(report, images=images)
    contents[folder.report_path("json")] = json.dumps(report_json(report), indent=2) + "\n"
    for path, content in contents.items():
        folder.write_file(path, content)
    return tuple(contents)


def _images(report: Report) -> dict[str, bytes]:
    try:
        from results.plots import plots

        return plots(report.ranking)
    except Exception:
        logger.warning("the plots could not be drawn", exc_info=True)
        return {}
