"use strict";
// Draws the figures, for the screen and for paper, follows light and dark, opens what a link leads to. It reads this page and
// nothing else.
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 40rem)");
  const PAPER = 640;                          // pixels across that A4 and Letter have beside the page's margins
  const NAME = 16;                            // pixels of a name above its bars
  let printed = null;                         // while the page is printed: how it was before
  const before = new Map();                   // the screen's width of each figure, until paper's styles are surely gone
  const drawings = JSON.parse(document.getElementById("drawings").textContent);
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  // "@own" below a key that ends with "color" is a colour of the page's style.
  function coloured(value, key = "") {
    if (typeof value === "string") {
      return key.endsWith("color") && value.startsWith("@") ? colour(value.slice(1)) : value;
    }
    if (Array.isArray(value)) return value.map((each) => coloured(each, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, coloured(each, name)]));
    }
    return value;
  }

  // On a narrow screen names stand above their bars, or there would be no room for the bars.
  function above(layout, gap) {
    const names = layout.yaxis.categoryarray;
    return {
      ...layout, height: layout.height + NAME * names.length,
      yaxis: { ...layout.yaxis, showticklabels: false, autorange: false, range: [names.length - 0.5, -0.5] },
      annotations: names.map((text, place) => ({
        text, xref: "paper", x: 0, xanchor: "left", yref: "y", y: place - 0.5 + gap / 2, yanchor: "bottom", showarrow: false,
        align: "left", borderpad: 1, xshift: 2, bgcolor: colour("raised"),
      })),
    };
  }

  function laidOut(drawing) {
    const small = narrow.matches && !printed;
    const named = small && drawing.yaxis.categoryarray;
    const gap = named ? 0.5 : 0.3;
    const layout = named ? above(drawing, gap) : drawing;
    const ink = colour("ink");
    const axis = (own = {}) => ({
      gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("line"), automargin: true, ...own,
      title: { ...own.title, font: { size: 13, color: colour("quiet") } }, fixedrange: true,
    });
    return {
      ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis), dragmode: false,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", bargap: gap, bargroupgap: 0.08,
      font: { family: getComputedStyle(document.body).fontFamily, size: small ? 11 : 13, color: ink },
      margin: { l: small ? 8 : 56, r: 16, t: 36, b: 44 },
      showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal", font: { color: ink } },
      uniformtext: { minsize: 10, mode: "hide" },
      hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: ink }, align: "left" },
    };
  }

  async function unpacked() {
    const packed = document.getElementById("plotly").textContent;
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    if (!window.Plotly) throw new Error("the plots' program did not start");
  }

  function put(place) {
    const { data, layout } = drawings[place.dataset.figure];
    const width = printed ? PAPER : before.get(place) || place.clientWidth;
    return window.Plotly.react(place, coloured(data), { ...laidOut(layout), width }, { displayModeBar: false, doubleClick: false });
  }

  async function draw() {
    if (!window.Plotly) return;
    for (const place of document.querySelectorAll(".drawing")) await put(place);
    root.dataset.drawn = isDark() ? "dark" : "light";
  }

  let asked = Promise.resolve();
  const redraw = () => { asked = asked.then(draw).catch(say); };

  function say(error) {
    for (const place of document.querySelectorAll(".drawing")) {
      place.textContent = `This browser cannot draw the figure (${error.message}); the table below has its figures.`;
      place.classList.add("failed");
    }
    for (const table of document.querySelectorAll("details.figures")) table.open = true;
    root.dataset.drawn = "failed";
  }

  function themed() {
    button.setAttribute("aria-pressed", String(isDark()));
    redraw();
  }

  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; themed(); });
  dark.addEventListener("change", themed);
  let waiting = 0;
  addEventListener("resize", () => { before.clear(); clearTimeout(waiting); waiting = setTimeout(redraw, 150); });

  const attempts = [...document.querySelectorAll("details.attempt")];
  const filters = [...document.querySelectorAll("button[data-show]")];
  function show(which) {
    for (const attempt of attempts) attempt.hidden = which !== "all" && attempt.dataset.result !== which;
    for (const filter of filters) filter.setAttribute("aria-pressed", String(filter.dataset.show === which));
  }
  for (const filter of filters) filter.addEventListener("click", () => show(filter.dataset.show));
  for (const opener of document.querySelectorAll("button[data-open]")) {
    opener.addEventListener("click", () => {
      for (const attempt of attempts) if (!attempt.hidden) attempt.open = opener.dataset.open === "true";
    });
  }

  function follow() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target || !target.matches("details")) return false;
    if (target.hidden) show("all");
    target.open = true;
    target.querySelector("summary").focus({ preventScroll: true });
    target.scrollIntoView();
    return true;
  }
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {  // a link to where the address leads already changes no hash
    const link = event.target.closest("a[href^='#']");
    if (!link || link.hash !== location.hash || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if (follow()) event.preventDefault();
  });

  // Paper is light, and shows what is inside an attempt that is open. A browser waits for no promise here.
  addEventListener("beforeprint", () => {
    if (printed) return;
    const closed = [...document.querySelectorAll("details.figures, details.attempt[open] details")].filter((one) => !one.open);
    printed = { theme: root.dataset.theme, closed };
    for (const place of document.querySelectorAll(".drawing")) before.set(place, place.clientWidth);
    for (const one of closed) one.open = true;
    root.dataset.theme = "light";
    if (window.Plotly) Promise.all([...document.querySelectorAll(".drawing")].map(put)).catch(say);
  });
  addEventListener("afterprint", () => {
    if (!printed) return;
    const { theme, closed } = printed;
    printed = null;
    for (const one of closed) one.open = false;
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    themed();
  });

  button.setAttribute("aria-pressed", String(isDark()));
  follow();
  asked = unpacked().then(draw).catch(say);
})();
