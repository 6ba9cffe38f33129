// Draws curves with uPlot: ratings with their band and marks, the metrics of training, and shares of worker time.
"use strict";
(() => {
  const charts = new Map(); // element -> { plot, data, tag, draw }

  /** Return a colour of the theme, by its name or by an expression of names. */
  function colour(name) {
    const probe = document.createElement("i");
    probe.hidden = true;
    document.body.append(probe);
    probe.style.color = name.startsWith("--") ? `var(${name})` : name;
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  function faded(name, alpha) {
    const [, inside] = colour(name).match(/rgba?\(([^)]*)\)/) ?? [null, "128, 128, 128"];
    return `rgba(${inside.split(",").slice(0, 3).join(",")}, ${alpha})`;
  }

  function axis(extra) {
    return { stroke: colour("--dim"), font: "11px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, ...extra };
  }

  function size(element) {
    return { width: Math.max(120, element.clientWidth), height: Math.max(90, element.clientHeight) };
  }

  function readout(element) {
    let found = element.querySelector(".readout");
    if (!found) {
      found = document.createElement("div");
      found.className = "readout";
      element.append(found);
    }
    return found;
  }

  /** Return the range of the points and marks; uPlot would give a single point years of room. */
  function span(plot, room, found = { marks: [], bands: [] }) {
    const x = plot.data[0];
    const times = [...found.marks.map((mark) => mark.time), ...found.bands.map((band) => band.begin)]; // after the ratings
    const [low, high] = [Math.min(x[0], ...times), Math.max(x[x.length - 1], ...times)];
    return low === high ? [low - room, high + room] : [low, high];
  }

  function clock(seconds) {
    return new Date(seconds * 1000).toISOString().slice(5, 16).replace("T", " ") + "Z";
  }

  const TIMES = [[86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{MM}-{DD}", null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", "\n{MM}-{DD}", null, null, null, null, null, 1]];

  // Ratings -------------------------------------------------------------------------------------------------------
  function ratingPlot(element, found) {
    const accent = colour("--accent");
    const band = faded("--accent", 0.18);
    const below = Marks.room(element, found);
    const options = {
      ...size(element),
      padding: [8, 18, 0, 0],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      legend: { show: false },
      scales: { x: { range: (plot) => span(plot, 60, charts.get(element)?.data) }, y: { range: () => { const [low, high] = (charts.get(element)?.data ?? found).axis; return [low - 12, high + 12]; } } },
      series: [{}, { stroke: "transparent", points: { show: false } }, { stroke: "transparent", points: { show: false } },
        { stroke: accent, width: 1.6, points: { show: found.x.length < 3, size: 5, fill: accent } }],
      bands: [{ series: [2, 1], fill: band }],
      axes: [axis({ space: 70, size: 36 + below, gap: 5 + below, values: TIMES }), axis({ size: 46, space: 28 })],
      hooks: {
        drawAxes: [(plot) => Marks.tint(plot, charts.get(element)?.data ?? found, colour)],
        draw: [(plot) => Marks.draw(plot, element, charts.get(element)?.data ?? found, colour)],
        setCursor: [(plot) => {
          const at = plot.cursor.idx;
          const now = charts.get(element)?.data;
          readout(element).textContent = at == null || !now?.x.length ? "" :
            `${clock(now.x[at])}  ${Math.round(now.elo[at])} ± ${Math.round((now.high[at] - now.elo[at]) / 1.96)} Elo, step ${now.step[at]}`;
        }],
      },
    };
    return new uPlot(options, [found.x, found.low, found.high, found.elo], element);
  }

  /** Return the JSON at an address; null without news, and when the page is left or the server ends meanwhile. */
  async function load(address) {
    try {
      const answer = await fetch(address);
      return answer.status === 200 ? await answer.json() : null;
    } catch {
      return null;
    }
  }

  /**
   * Return a function that runs `work` for an element, once at a time. A call in the meantime leads to another run
   * after this one, because otherwise the second of two loads would draw beside the first.
   */
  function oneAtATime(work) {
    const again = new Map(); // element at work -> whether it was asked for meanwhile
    return async (element) => {
      if (again.has(element)) { again.set(element, true); return; }
      do {
        again.set(element, false);
        await work(element).catch((error) => { again.delete(element); throw error; });
      } while (again.get(element));
      again.delete(element);
    };
  }

  const ratings = oneAtATime(async (element) => {
    const known = charts.get(element);
    const have = known ? `?have=${encodeURIComponent(known.data.tag)}` : "";
    const found = await load(`/curves/ratings/${encodeURIComponent(element.dataset.ratings)}${have}`);
    if (!found) return;
    element.classList.toggle("blank", !found.x.length);
    if (!found.x.length) { charts.set(element, { data: found, tag: found.tag }); known?.plot?.destroy(); return; }
    if (known?.plot && known.data.x.length >= 3 && Marks.room(element, known.data) === Marks.room(element, found)) {
      known.data = found;
      known.plot.setData([found.x, found.low, found.high, found.elo]);
    } else {
      known?.plot?.destroy();
      charts.set(element, { data: found });
      charts.get(element).plot = ratingPlot(element, found);
    }
    charts.get(element).draw = ratingPlot;
  });

  // Metrics of training -------------------------------------------------------------------------------------------
  let metrics = null;

  function smoothed(values, weight) {
    if (!weight) return values;
    let sum = 0, norm = 0;
    return values.map((value) => { sum = sum * weight + value; norm = norm * weight + 1; return sum / norm; });
  }

  function metricData(found, scattered) {
    const weight = Number(document.getElementById("smoothing")?.value ?? 0);
    return [found.x, found.y, smoothed(found.y, scattered ? 0 : weight)];
  }

  /** Return the range of values, below 0 only with negative ones; uPlot would show a constant 0 on an axis up to 100. */
  function room(low, high) {
    const around = (high - low) * 0.1 || Math.abs(low) * 0.1 || 1;
    return low === null ? [0, 1] : [low < 0 ? low - around : Math.max(0, low - around), high + around];
  }

  /** Return the texts of ticks, with as many digits as tell neighbours apart. */
  function tickTexts(ticks, step) {
    const exponent = Math.floor(Math.log10(step));
    const digits = Math.max(...ticks.map((one) => one && Math.floor(Math.log10(Math.abs(one) * (1 + 1e-9))))) - exponent + 1;
    const extra = Number.isInteger(Number((step / 10 ** exponent).toPrecision(6))) ? 0 : 1; // uPlot's steps are 1, 2, 2.5 and 5
    const format = { notation: "compact", maximumSignificantDigits: Math.min(21, Math.max(1, digits + extra)) };
    return ticks.map((one) => Number(one.toPrecision(12)).toLocaleString("en", format));
  }
  const WHOLE = [1, 2, 5].flatMap((one) => [...Array(12).keys()].map((power) => one * 10 ** power)).sort((a, b) => a - b);

  function metricPlot(element, found) {
    const accent = colour("--accent");
    const scattered = "scattered" in element.dataset; // the points are of different players: a line would join nothing
    const shownPoints = { show: scattered || found.x.length < 3, size: 5, fill: accent };
    return new uPlot({
      ...size(element),
      padding: [6, 8, 0, 0],
      cursor: { y: false, points: { size: 5 }, drag: { x: false, y: false } },
      legend: { show: false },
      scales: { x: { time: false, range: (plot) => span(plot, 1) }, y: { range: (_, low, high) => room(low, high) } },
      series: [{}, { stroke: faded("--accent", 0.3), width: 1, points: { show: false }, show: !scattered },
        { stroke: accent, width: 1.5, points: shownPoints, ...(scattered ? { paths: () => null } : {}) }],
      axes: [axis({ size: 24, space: 60, incrs: WHOLE }), axis({ size: 50, space: 26, values: (_, ticks, __, ___, step) => tickTexts(ticks, step) })],
      hooks: {
        setCursor: [(plot) => {
          const at = plot.cursor.idx;
          const now = charts.get(element)?.data;
          const output = element.closest("figure").querySelector("output");
          const index = at ?? (now ? now.x.length - 1 : null);
          output.textContent = now && index !== null && now.x.length ? `${Number(now.y[index].toPrecision(4))} at ${now.x[index]}` : "";
        }],
      },
    }, metricData(found, scattered), element);
  }

  function metric(element) {
    const found = metrics?.[element.dataset.tag];
    if (!found?.x.length || !element.clientWidth) return;
    const known = charts.get(element);
    if (known?.plot && known.data.x.length >= 3) {
      known.data = found;
      known.plot.setData(metricData(found, "scattered" in element.dataset));
    } else {
      known?.plot?.destroy();
      charts.set(element, { data: found, draw: metricPlot });
      charts.get(element).plot = metricPlot(element, found);
    }
  }

  // Shares of worker time ------------------------------------------------------------------------------------------
  const percent = (share) => `${Math.round(100 * share)}%`;

  /** Return a legend's entry of a group: its shares at a time, or of the whole time. */
  function shareText(group, at) {
    const [share, evaluation] = at == null ? [group.mean_share, group.mean_evaluation] : [group.share[at], group.evaluation[at]];
    return `${group.name} ${percent(share)}, evaluation ${percent(share ? evaluation / share : 0)} of it`;
  }

  /** Return the layers of a stack, the topmost first: each covers what is above the one below it. */
  function layers(found) {
    const sums = found.x.map(() => 0);
    const add = (values) => values.map((value, at) => (sums[at] += value));
    return found.groups.flatMap(({ share, evaluation }, number) => [
      { data: add(share.map((value, at) => value - evaluation[at])), colour: `var(--share-${number})` },
      { data: add(evaluation), colour: `color-mix(in srgb, var(--share-${number}) 45%, var(--panel))` },
    ]).reverse();
  }

  function sharePlot(element, found) {
    const stack = layers(found), edge = colour("--panel");
    const legend = document.getElementById(element.dataset.legend);
    legend.replaceChildren(...found.groups.map((_, number) => {
      const [entry, key] = [document.createElement("li"), document.createElement("span")];
      key.className = `key share-${number}`;
      entry.append(key, document.createElement("span"));
      return entry;
    }));
    const say = (at) => [...legend.children].forEach((entry, number) => {
      entry.lastChild.textContent = shareText((charts.get(element)?.data ?? found).groups[number], at);
    });
    say();
    return new uPlot({
      ...size(element),
      padding: [8, 18, 0, 0],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      legend: { show: false },
      scales: { x: { range: (plot) => span(plot, 60) }, y: { range: [0, 1] } },
      series: [{}, ...stack.map((layer) => ({ stroke: edge, width: 0.7, fill: colour(layer.colour), points: { show: false } }))],
      axes: [axis({ space: 70, size: 36, values: TIMES }), axis({ size: 46, space: 28, values: (_, ticks) => ticks.map(percent) })],
      hooks: { setCursor: [(plot) => {
        say(plot.cursor.idx);
        readout(element).textContent = plot.cursor.idx == null ? "" : clock(plot.data[0][plot.cursor.idx]);
      }] },
    }, [found.x, ...stack.map((layer) => layer.data)], element);
  }

  const shares = oneAtATime(async (element) => {
    const known = charts.get(element);
    const found = await load(`/curves/shares${known ? `?have=${encodeURIComponent(known.data.tag)}` : ""}`);
    if (!found) return;
    element.classList.toggle("blank", !found.x.length);
    known?.plot?.destroy();
    charts.set(element, { data: found, draw: sharePlot });
    if (found.x.length) charts.get(element).plot = sharePlot(element, found);
  });

  const visible = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const element = entry.target;
      if (!entry.isIntersecting) { visible.delete(element); continue; }
      visible.add(element);
      if (element.dataset.tag) metric(element);
      else if (!charts.has(element)) (element.dataset.ratings ? ratings : shares)(element);
    }
  }, { rootMargin: "200px" });

  const loadMetrics = oneAtATime(async (root) => {
    const found = await load(`/curves/metrics/${encodeURIComponent(root.dataset.metrics)}`);
    if (!found) return;
    metrics = found;
    for (const element of visible) if (element.dataset.tag) metric(element);
  });

  function redraw() {
    for (const [element, known] of charts) {
      if (!element.isConnected) { charts.delete(element); continue; }
      if (!known.plot) continue;
      known.plot.destroy();
      known.plot = known.draw(element, known.data);
    }
  }

  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = charts.get(target)?.plot;
      if (plot && Math.abs(plot.width - target.clientWidth) > 1) plot.setSize(size(target));
    }
  });

  for (const element of document.querySelectorAll("[data-ratings], [data-tag], [data-legend]")) {
    observer.observe(element);
    resized.observe(element);
    if (element.dataset.legend) element.addEventListener("live", () => shares(element));
    if (!element.dataset.ratings) continue;
    element.addEventListener("live", () => ratings(element));
    Marks.follow(element, () => charts.get(element));
  }
  const root = document.querySelector("[data-metrics]");
  if (root) {
    loadMetrics(root);
    root.addEventListener("live", () => loadMetrics(root));
  }
  document.getElementById("smoothing")?.addEventListener("input", () => { for (const element of visible) if (element.dataset.tag) metric(element); });
  document.addEventListener("flyball:theme", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
