"use strict";
const { charts, config } = JSON.parse(document.getElementById("charts").textContent);
const coarse = matchMedia("(pointer: coarse)").matches; // a finger scrolls the page, and zooms no chart
const narrow = matchMedia("screen and (max-width: 669px)").matches; // as page.css has it
const boxes = Object.entries(charts).map(([name, { data, layout }]) => {
  const box = document.getElementById(`chart-${name}`);
  box.replaceChildren();
  layout.dragmode = coarse ? false : "zoom";
  if (narrow) {
    layout.xaxis.nticks = 5;
    if (layout.meta) layout.xaxis.range = layout.meta.narrow;
  }
  Plotly.newPlot(box, data, layout, config);
  return box;
});
addEventListener("beforeprint", () => boxes.forEach((box) => Plotly.relayout(box, { width: 680 })));
addEventListener("afterprint", () => boxes.forEach((box) => Plotly.relayout(box, { width: null, autosize: true })));
// A page that a server gives without TLS has no clipboard.
for (const button of navigator.clipboard ? document.querySelectorAll("button.copy") : []) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
