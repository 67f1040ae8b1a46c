// Draws the plots in the colors of the page, and again when the theme changes.
(function () {
  "use strict";
  const figures = JSON.parse(document.getElementById("plot-data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 760px)");

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function paint(trace) {
    const own = color(trace.meta.role);
    Object.assign(trace.marker, { color: own });
    trace.marker.line.color = color("card");
    for (const bars of [trace.error_x, trace.error_y]) if (bars) bars.color = own;
    trace.textfont = { color: color("text"), size: narrow.matches ? 11 : 13 };
  }

  function draw(box, figure) {
    const { data, layout } = JSON.parse(JSON.stringify(figure));
    const text = color("text"), muted = color("muted"), line = color("line");
    data.forEach(paint);
    for (const shape of layout.shapes || []) shape.line.color = color(shape.name);
    for (const note of layout.annotations || []) note.font.color = color("fail");
    for (const axis of [layout.xaxis, layout.yaxis]) {
      Object.assign(axis, { gridcolor: line, linecolor: line, color: muted });
      axis.title.font = { size: narrow.matches ? 11 : 13, color: text };
    }
    if (narrow.matches) {
      layout.margin = { l: 52, r: 10, t: 8, b: 48 };
      // Names of many layers would cover each other; their places in the graph remain.
      if ((layout.xaxis.ticktext || []).length > 8) {
        for (const key of ["tickvals", "ticktext", "tickangle"]) delete layout.xaxis[key];
      }
    }
    Object.assign(layout, {
      autosize: true,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: text },
      hoverlabel: { bgcolor: color("card"), bordercolor: muted, font: { color: text }, align: "left" },
      dragmode: false,
    });
    return Plotly.react(box, data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
  }

  for (const [id, figure] of Object.entries(figures)) {
    const box = document.getElementById(id), table = document.getElementById(id + "-table");
    const again = function () { return draw(box, figure); };
    box.hidden = false;
    again().then(function () {
      table.open = false;
      dark.addEventListener("change", again);
      narrow.addEventListener("change", again);
    });
  }
})();
