"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // The layout in the page's colours; the data keeps its own, which suit light and dark pages.
  const coloured = (layout) => {
    const themed = { ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
    themed.font = { ...layout.font, color: colour("--ink") };
    themed.hoverlabel = { bgcolor: colour("--tile"), font: { color: colour("--ink") } };
    for (const name of new Set(["xaxis", "yaxis", ...Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))])) {
      const lines = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line") };
      themed[name] = { automargin: true, ...layout[name], ...lines };
    }
    return themed;
  };

  const plots = [];
  for (const place of document.querySelectorAll(".plot")) {
    const figure = JSON.parse(place.querySelector("script").textContent);
    plots.push({ place, figure });
  }
  const draw = () => {
    for (const { place, figure } of plots) {
      Plotly.react(place, figure.data, coloured(figure.layout), { displayModeBar: false, responsive: true });
    }
  };
  if (plots.length) {
    for (const { place, figure } of plots) {
      Plotly.newPlot(place, figure.data, coloured(figure.layout), { displayModeBar: false, responsive: true });
    }
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  }
  for (const details of document.querySelectorAll("details")) {
    details.addEventListener("toggle", () => {
      for (const place of details.querySelectorAll(".plot")) Plotly.Plots.resize(place);
    });
  }

  const status = document.getElementById("status");
  const byHand = (text) => {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      byHand(button.dataset.copy);
      button.focus();
    }
    button.textContent = "copied";
    if (status) status.textContent = "copied to the clipboard";
    setTimeout(() => { button.textContent = "copy"; if (status) status.textContent = ""; }, 2000);
  });
})();
