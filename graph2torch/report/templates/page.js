"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const data = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));

  // light and dark; where nothing may be stored, the choice lasts as long as the page
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = document.querySelector(".theme");
  const shown = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const label = () => { theme.textContent = shown() === "dark" ? "Light" : "Dark"; theme.setAttribute("aria-label", `${theme.textContent} colours`); };
  try { const kept = localStorage.getItem("graph2torch-theme"); if (kept === "dark" || kept === "light") root.dataset.theme = kept; } catch { /* not allowed */ }
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = shown() === "dark" ? "light" : "dark";
    try { localStorage.setItem("graph2torch-theme", root.dataset.theme); } catch { /* not allowed */ }
    label();
  });
  dark.addEventListener("change", label);
  label();

  // a drawing shrinks to the room there is, as long as it can be read; sections and lines that go on beyond the right edge fade out there
  const smallest = 0.68, readable = 0.85;
  const fit = (graph) => {
    const room = graph.parentElement.clientWidth - 4, width = graph.viewBox.baseVal.width;
    graph.style.minWidth = `${Math.floor(room >= smallest * width ? smallest * width : readable * width)}px`;
  };
  const fade = (element) => { element.classList.toggle("more-right", element.scrollLeft + element.clientWidth < element.scrollWidth - 1); };
  const sized = new ResizeObserver((entries) => { for (const { target } of entries) { const graph = target.querySelector(".graph"); if (graph) fit(graph); else fade(target); } });
  for (const graph of all(".graph")) { fit(graph); sized.observe(graph.parentElement); }
  for (const element of all("nav, .listing")) {
    element.addEventListener("scroll", () => fade(element), { passive: true });
    sized.observe(element);
  }

  // blocks
  const panels = all(".panel");
  const narrow = matchMedia("screen and (max-width: 860px)");
  const box = (id) => document.querySelector(`a.box[href="#${CSS.escape(id)}"]`);
  let current = null;
  const select = (id, opened) => {
    const article = document.getElementById(id);
    if (!article || !article.classList.contains("block")) return;
    const panel = article.closest(".panel");
    for (const other of all(".block.selected", panel)) other.classList.remove("selected");
    for (const other of all("a.box[aria-current]")) other.removeAttribute("aria-current");
    for (const line of all(".listing .hit")) line.classList.remove("hit");
    article.classList.add("selected");
    box(id)?.setAttribute("aria-current", "true");
    for (const n of data.lines?.[article.dataset.block ?? id.slice(6)] ?? []) document.getElementById(`L${n}`)?.classList.add("hit");
    panel.scrollTop = 0;
    if (opened) panel.classList.add("open");
    current = id;
  };
  const release = () => {
    for (const panel of panels) panel.classList.remove("open");
    if (current) box(current)?.focus();
    if (narrow.matches || !current) return;
    for (const other of all("a.box[aria-current]")) other.removeAttribute("aria-current");
    for (const line of all(".listing .hit")) line.classList.remove("hit");
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-block]");
    if (!link) return;
    event.preventDefault();
    const id = link.getAttribute("href").slice(1);
    select(id, true);
    if (narrow.matches) box(id)?.scrollIntoView({ block: "start" }); // above what comes up from below
    else if (!link.classList.contains("box") && !link.closest(".panel")) box(id)?.scrollIntoView({ block: "center" });
    try { history.replaceState(null, "", `#${id}`); } catch { /* not allowed */ }
  });
  const arrows = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"];
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { release(); return; }
    const here = event.target.closest?.("a.box");
    const way = arrows.indexOf(event.key);
    if (!here || way < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const [prefix, number] = here.getAttribute("href").slice(1).split(/-(?=\d+$)/);
    const to = (data.keys[prefix] ?? data.keys)[number]?.[way];
    if (to === undefined) return;
    event.preventDefault();
    const next = box(`${prefix}-${to}`);
    next.focus();
    next.scrollIntoView({ block: "nearest" });
    select(`${prefix}-${to}`, false);
  });
  for (const close of all(".close")) { close.hidden = false; close.addEventListener("click", release); }
  const fromAddress = () => {
    const id = location.hash.slice(1);
    select(id, true);
    if (current === id) box(id)?.scrollIntoView({ block: "center", behavior: "instant" });
  };
  addEventListener("hashchange", fromAddress);
  for (const panel of panels) { const first = panel.querySelector(".block"); if (first) select(first.id, false); }
  fromAddress();
  for (const drawing of all(".drawing")) {
    const first = box(current)?.closest(".drawing") === drawing ? box(current) : drawing.querySelector("a.box");
    if (first) drawing.scrollLeft += first.getBoundingClientRect().x + first.getBoundingClientRect().width / 2 - drawing.getBoundingClientRect().x - drawing.clientWidth / 2;
  }

  // on paper nothing can be opened
  let closed = [];
  addEventListener("beforeprint", () => { closed = all("details:not([open])"); for (const details of closed) details.open = true; });
  addEventListener("afterprint", () => { for (const details of closed) details.open = false; });

  // a normaliser's columns, under the pointer or the arrow keys
  const short = (x) => (x === 0 ? "0" : String(Number(x.toPrecision(4)))).replace("-", "−");
  for (const plot of all(".plot[data-normaliser]")) {
    const { columns, never } = data.normalisers[plot.dataset.normaliser];
    const svg = plot.querySelector("svg"), cursor = plot.querySelector(".cursor"), out = plot.querySelector(".readout");
    const width = svg.viewBox.baseVal.width - 62;
    let at = -1;
    const show = (i) => {
      at = Math.max(0, Math.min(columns.length - 1, i));
      const [mean, std] = columns[at];
      const x = (at + 0.5) * width / columns.length;
      cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
      out.textContent = `column ${at}: mean ${short(mean)}, std ${short(std)}; clipped below ${short(mean - 5 * std)} and above ${short(mean + 5 * std)}` + (never.includes(at) ? "; never changed in training" : "");
    };
    for (const kind of ["pointermove", "pointerdown"]) svg.addEventListener(kind, (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      show(Math.floor(point.x / width * columns.length));
    });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) { event.preventDefault(); show(at + step); }
    });
  }
})();
