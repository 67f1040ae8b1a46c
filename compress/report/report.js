// Draws the tradeoff plot in the colors of the page, and again when the theme changes.
(function () {
  "use strict";
  const box = document.getElementById("plot");
  const table = document.getElementById("plot-table");
  const figure = JSON.parse(document.getElementById("plot-data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 760px)");

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function draw() {
    const { data, layout } = JSON.parse(JSON.stringify(figure));
    const text = color("text"), muted = color("muted"), line = color("line");
    for (const trace of data) {
      const own = color(trace.meta.role);
      Object.assign(trace.marker, { color: own });
      trace.marker.line.color = color("card");
      trace.error_x.color = own;
      trace.error_y.color = own;
      trace.textfont = { color: text, size: narrow.matches ? 11 : 13 };
    }
    for (const shape of layout.shapes) shape.line.color = color(shape.name);
    for (const note of layout.annotations || []) note.font.color = color("fail");
    for (const axis of [layout.xaxis, layout.yaxis]) {
      Object.assign(axis, { gridcolor: line, linecolor: line, color: muted });
      axis.title.font = { size: narrow.matches ? 11 : 13, color: text };
    }
    if (narrow.matches) layout.margin = { l: 52, r: 10, t: 8, b: 48 };
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

  box.hidden = false;
  draw().then(function () {
    table.open = false;
    dark.addEventListener("change", draw);
    narrow.addEventListener("change", draw);
  });
})();
