// Keeps a page fresh: a stream of news triggers "live" on the parts that show what changed, and htmx fetches them.
"use strict";
(() => {
  const PART_MS = 1500; // least time between two refreshes of a part
  const connection = document.getElementById("connection");
  let table = document.querySelector("[data-events]"); // gets its rows from the stream
  let position = Number(table?.dataset.after ?? document.body.dataset.position);
  let source = null;
  let waiting = 0;

  // The dot: the stream's state, and whether the run is running -----------------------------------------------------
  const STATES = { connecting: "connecting", live: "live", lost: "reconnecting", paused: "paused" };
  function say(state, running = connection.dataset.running) {
    if (connection.dataset.state === state && connection.dataset.running === running) return;
    connection.dataset.state = state;
    connection.dataset.running = running;
    connection.querySelector(".text").textContent = state === "live" && running === "false" ? "not running" : STATES[state];
  }

  // Parts ---------------------------------------------------------------------------------------------------------
  const seen = new Set(); // parts in view; the others are refreshed once they come into view
  const stale = new Set();
  const last = new WeakMap();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) seen.add(entry.target); else seen.delete(entry.target);
    }
    refresh();
  }, { rootMargin: "200px" });

  function watch(root) {
    for (const part of root.querySelectorAll("[data-live]")) observer.observe(part);
  }

  function concerns(part, configs) {
    const wanted = part.dataset.live;
    return wanted === "*" || configs.includes(wanted);
  }

  function refresh() {
    const now = performance.now();
    for (const part of stale) {
      if (!part.isConnected) { stale.delete(part); continue; }
      if (!seen.has(part) || now - (last.get(part) ?? -PART_MS) < PART_MS) continue;
      stale.delete(part);
      last.set(part, now);
      part.dispatchEvent(new CustomEvent("live"));
    }
  }
  setInterval(refresh, 250);

  function news(configs) {
    for (const part of document.querySelectorAll("[data-live]")) if (concerns(part, configs)) stale.add(part);
    refresh();
  }
  // Signs of life and ages change without any event.
  setInterval(() => { if (!document.hidden) for (const part of document.querySelectorAll("[data-live='*']")) stale.add(part); }, 5000);

  // The stream ----------------------------------------------------------------------------------------------------
  function open() {
    const query = new URLSearchParams(table ? `${table.dataset.events}&rows=1` : "");
    query.set("after", position);
    query.set("running", connection.dataset.running);
    source = new EventSource(`/live?${query}`);
    source.onopen = () => { waiting = 0; say("live"); };
    source.onerror = () => {
      say("lost");
      if (source.readyState === EventSource.CLOSED) { // the server answered with an error: the browser gives up, we do not
        close();
        setTimeout(() => { if (!document.hidden && !source) open(); }, Math.min(10000, 1000 * 2 ** waiting++));
      }
    };
    source.addEventListener("news", (message) => {
      position = Number(message.lastEventId);
      const found = JSON.parse(message.data);
      document.dispatchEvent(new CustomEvent("flyball:news", { detail: found }));
      news(found.configs);
    });
    source.addEventListener("rows", (message) => {
      position = Number(message.lastEventId);
      addRows(message.data);
    });
    source.addEventListener("run", (message) => say(connection.dataset.state, message.data));
    source.addEventListener("reset", () => location.reload());
  }

  function close() {
    source?.close();
    source = null;
  }

  // A hidden page holds no connection: browsers allow only six to a server.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); say("paused"); } else if (!source) open();
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => { if (event.persisted && !source) open(); });

  // Rows of events ------------------------------------------------------------------------------------------------
  const MOST_ROWS = 500;
  let rows = []; // waiting until the reader is at the top of the page, because rows on top would push away what is read
  function addRows(html) {
    const found = document.createElement("template");
    found.innerHTML = html;
    rows = [...rows, ...found.content.querySelectorAll("tr")].slice(-MOST_ROWS);
    if (scrollY > 0) hold(rows.length < MOST_ROWS ? `${rows.length} new events` : `more than ${MOST_ROWS} new events`);
    else showRows();
  }

  function showRows() {
    const body = table?.tBodies[0];
    if (!body || !rows.length) return;
    document.getElementById("empty")?.remove();
    for (const row of rows) {
      row.classList.add("new");
      body.prepend(row);
      htmx.process(row);
    }
    rows = [];
    while (body.rows.length > MOST_ROWS) body.lastElementChild.remove();
  }

  // What is read stays where it is ----------------------------------------------------------------------------------
  const held = document.getElementById("held");
  function hold(text) {
    held.textContent = `↑ ${text}`;
    held.hidden = false;
  }
  held.addEventListener("click", () => scrollTo({ top: 0 }));
  addEventListener("scroll", () => {
    if (scrollY > 0) return;
    held.hidden = true;
    showRows();
  }, { passive: true });
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (scrollY <= 0 || !("hold" in event.detail.elt.dataset)) return;
    event.preventDefault();
    hold(event.detail.elt.dataset.hold);
  });

  const kept = new WeakMap(); // part -> what its next content does not know: opened details, and scrolled tables
  document.body.addEventListener("htmx:beforeSwap", ({ detail: { target } }) => kept.set(target, {
    open: [...target.querySelectorAll("details[open][id]")].map((one) => one.id),
    scrolled: [...target.querySelectorAll(".scroll")].map((one) => [one.getAttribute("aria-label"), one.scrollLeft]),
  }));
  document.body.addEventListener("htmx:afterSwap", ({ detail: { target } }) => {
    const { open, scrolled } = kept.get(target) ?? { open: [], scrolled: [] };
    for (const one of target.querySelectorAll("details[id]")) if (open.includes(one.id)) one.open = true;
    const lefts = new Map(scrolled);
    for (const one of target.querySelectorAll(".scroll")) one.scrollLeft = lefts.get(one.getAttribute("aria-label")) ?? 0;
  });

  // Controls ------------------------------------------------------------------------------------------------------
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });
  document.addEventListener("input", (event) => {
    const selector = event.target.dataset?.filter;
    if (!selector) return;
    const text = event.target.value.trim().toLowerCase();
    for (const one of document.querySelectorAll(selector)) one.hidden = !one.dataset.text.toLowerCase().includes(text);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    const field = document.querySelector("input[type=search]");
    if (field) { event.preventDefault(); field.focus(); field.select(); }
  });
  document.body.addEventListener("htmx:afterRequest", ({ detail: { elt, target, successful } }) => {
    const dialog = target.closest("dialog");
    if (!dialog) return;
    if (!successful) { location.assign(elt.href); return; } // the page says why
    if (!dialog.open) dialog.showModal();
    target.scrollTop = 0;
  });

  document.body.addEventListener("htmx:afterSwap", (event) => watch(event.detail.elt));
  document.body.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.elt.id !== "content") return; // only another filter, or another event, replaces the content
    remember();
    rows = [];
    held.hidden = true;
    table = document.querySelector("[data-events]");
    if (table) position = Number(table.dataset.after);
    watch(event.detail.elt);
    close();
    open();
  });

  // Pages about one configuration go on with the one that this tab showed last.
  function remember() {
    const key = document.getElementById("content").dataset.key || sessionStorage.getItem("config");
    if (!key) return;
    sessionStorage.setItem("config", key);
    for (const link of document.querySelectorAll("nav a[data-keyed]")) link.search = new URLSearchParams({ key });
  }
  window.addEventListener("pageshow", remember);

  watch(document);
  if (!document.hidden) open();
})();
