"""How pages and charts look: on phones and desks, in light and dark, on screen and paper."""

# Colors that the color-blind can tell apart (after Okabe and Ito), lighter ones on a dark page.
_LIGHT = """
  --page: #f6f7f9; --card: #ffffff; --text: #1b2330; --quiet: #5a6677; --rule: #dfe3e9;
  --grid: #eceff3; --c0: #0072b2; --c1: #d55e00; --c2: #008f68; --c3: #b8558a; --c4: #2f8fc9;
  --c5: #b97f00; --own: #b8558a;
"""
_DARK = """
  --page: #12161d; --card: #1a2029; --text: #e6eaf0; --quiet: #9aa6b6; --rule: #313a47;
  --grid: #262e39; --c0: #5bb4ee; --c1: #ff9257; --c2: #3fcf9f; --c3: #e9a3cb; --c4: #a6d5f7;
  --c5: #f0c052; --own: #e9a3cb;
"""

_COLORS = (
    f":root {{ color-scheme: light dark; {_LIGHT} }}\n"
    f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}\n"
    + "\n".join(
        f".c{number} {{ --color: var(--c{number}); }}"
        for number in range(6)  # as many as charts.COLORS
    )
    + """
.dash1 { stroke-dasharray: 7 4; } .dash2 { stroke-dasharray: 2 3; }
.dash3 { stroke-dasharray: 8 3 2 3; }
.target { --color: var(--c0); } .nontarget { --color: var(--c1); } .own { --color: var(--own); }
"""
)

_CHARTS = """
svg text { font-size: 11px; fill: var(--quiet); font-variant-numeric: tabular-nums; }
svg text.label { fill: var(--text); }
svg text.halo { paint-order: stroke; stroke: var(--card); stroke-width: 3px; }
svg .start { text-anchor: start; } svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg path { fill: none; }
svg .grid { stroke: var(--grid); } svg .axis { stroke: var(--quiet); }
svg .line { stroke: var(--color); stroke-width: 2; stroke-linejoin: round; }
svg .line.diagonal { stroke: var(--quiet); stroke-opacity: 0.5; stroke-width: 1; }
svg .marker { fill: var(--color, var(--quiet)); stroke: var(--card); stroke-width: 1.5; }
svg .marker.small { stroke-width: 1; }
svg .area { fill: var(--color); fill-opacity: 0.22; stroke: var(--color); stroke-width: 1.5; }
svg .whisker { stroke: var(--color); stroke-opacity: 0.55; stroke-width: 1.5; }
svg.strip { display: block; width: 120px; height: 16px; margin-top: 1px; }
svg .whole { stroke: var(--text); stroke-dasharray: 2 2; } svg.strip .axis { stroke: var(--rule); }
svg .upright { stroke: var(--color, var(--text)); stroke-dasharray: 4 3; }
"""

# Of a chart that is a file of its own.
CHART_STYLE = (
    _COLORS
    + _CHARTS
    + """
svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
svg .paper { fill: var(--card); }
"""
)

# Of a page, with its charts.
STYLE = (
    _COLORS
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--text); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main { max-width: 1160px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 30px; line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 20px; }
h2 {
  font-size: 22px; line-height: 1.25; letter-spacing: -0.01em; margin: 56px 0 16px;
  padding-top: 20px; border-top: 2px solid var(--text);
}
h3 { font-size: 16px; line-height: 1.3; margin: 0 0 4px; }
h3.part { font-size: 18px; margin-top: 36px; }
p { margin: 0 0 12px; max-width: 76ch; }
a { color: var(--c0); }
.warning { border-left: 3px solid var(--c1); padding-left: 12px; }
.quiet, figcaption, .how { color: var(--quiet); font-size: 14px; }
code { font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }

nav { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 20px; font-size: 14px; }
dl.facts {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(240px, 1fr)); gap: 12px 28px;
  margin: 0 0 24px;
}
dl.facts div.wide { grid-column: 1 / -1; }
dt { color: var(--quiet); font-size: 13px; } dd { margin: 0; font-size: 15px; }

.card {
  background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 20px;
  margin: 0 0 20px; min-width: 0;
}
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 20px; }
.pair > .card { margin: 0; } .pair { margin: 0 0 20px; }
figure { margin: 0; } figcaption { margin-top: 10px; max-width: 64ch; }

.box { overflow-x: auto; margin: 8px -20px -8px; padding: 0 20px 8px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; line-height: 1.35; }
th, td { text-align: left; vertical-align: top; padding: 8px 0 8px 20px; overflow-wrap: normal; }
th:first-child, td:first-child { padding-left: 0; }
thead th {
  color: var(--quiet); font-size: 0.93em; font-weight: 500; vertical-align: bottom;
  white-space: nowrap; border-bottom: 1px solid var(--text);
}
tbody tr + tr > * { border-top: 1px solid var(--rule); }
tbody th { font-weight: 600; min-width: 8em; }
.number {
  text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums lining-nums;
}
.main { font-weight: 650; }
.after { margin: 16px 0 0; }
.note { display: block; color: var(--quiet); font-size: 0.86em; font-weight: 400; }
td.name { font: 12px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
td.name, td.name .note { color: var(--text); font-size: 12px; overflow-wrap: anywhere; }
.key, td.key { padding-left: 26px; } td.key { min-width: 9em; }
.key::before {
  content: ""; display: inline-block; width: 18px; margin: 0 8px 0 -26px; vertical-align: 0.25em;
  border-top: 3px solid var(--color, transparent);
}
.key.dash1::before, .key.dash3::before { border-top-style: dashed; }
.key.dash2::before { border-top-style: dotted; }
.legend {
  display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 10px 0 0; padding: 0; list-style: none;
  font-size: 14px;
}
.legend svg { width: 14px; height: 14px; margin-right: 5px; vertical-align: -2px; }
.legend svg path { fill: var(--quiet); }

figure > svg { display: block; width: 100%; height: auto; max-width: 560px; margin: 0 auto; }
"""
    + _CHARTS
    + """
@media (max-width: 760px) {
  main { padding: 24px 12px 40px; }
  h1 { font-size: 24px; } h2 { font-size: 20px; margin-top: 40px; }
  .pair { grid-template-columns: minmax(0, 1fr); }
  .card { padding: 14px 12px; } .box { margin: 8px -12px -6px; padding: 0 12px 6px; }
  th, td { padding-left: 14px; }
  dl.facts { grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); }
  figure > svg text { font-size: 12.5px; }  /* the drawing is smaller than on a desk */
}
@media print {
  body { background: none; font-size: 12px; }
  main { max-width: none; padding: 0; }
  .card { border: 0; padding: 0; margin-bottom: 24px; }
  .box { overflow: visible; margin: 8px 0 0; padding: 0; }
  table { font-size: 10px; } td.name, td.name .note { font-size: 9px; }
  .pair.long { display: block; }
  th, td { padding-left: 8px; } thead th { white-space: normal; } svg.strip { width: 70px; }
  h2, h3 { break-after: avoid; } figure, tr { break-inside: avoid; } nav { display: none; }
}
"""
)
