// Marks and bands of the Elo charts, in lanes below the plot: one lane for a kind, so that none hides another.
"use strict";
const Marks = (() => {
  const STYLES = {
    promotion: ["--good", "up"], rollback: ["--bad", "down"], knob: ["--knob", "diamond"], weight: ["--weight", "dot"],
    boost: ["--warn", "full"], stall: ["--dim", "hollow"], plateau: ["--dim", "full"], block: ["--bad", "full"],
  };
  const LANES = [["promotion"], ["rollback"], ["knob"], ["weight"], ["boost"], ["stall", "plateau"], ["block"]];
  const LANE = 12; // height of a lane, as all figures here in CSS pixels
  const APART = 24; // least distance of two marks of a kind; nearer ones are drawn as one, with their number
  const NEAR = 8; // distance from a mark within which the pointer shows its text
  const MOST_TEXTS = 4;

  /** Return the lanes that a chart needs. A chart without `data-knobs` shows no small decisions, for it is small. */
  function lanes(element, found) {
    const kinds = new Set([...found.marks, ...found.bands].map((one) => one.what));
    if (!("knobs" in element.dataset)) { kinds.delete("knob"); kinds.delete("weight"); }
    return LANES.filter((lane) => lane.some((kind) => kinds.has(kind)));
  }

  const room = (element, found) => lanes(element, found).length * LANE;

  const left = (plot, time) => plot.valToPos(time, "x");

  /** Return groups of marks that are too near for marks of their own, by where they begin. */
  function clusters(plot, marks) {
    const found = [];
    for (const mark of marks) {
      const x = left(plot, mark.time);
      if (x < 0 || x > plot.over.clientWidth) continue;
      const last = found[found.length - 1];
      if (last && x - last.x < APART) last.marks.push(mark);
      else found.push({ x, marks: [mark] });
    }
    return found;
  }

  /** Return the bands of some kinds, with their ends in the plot. One that lasts ends at the right. */
  function spans(plot, bands) {
    const width = plot.over.clientWidth;
    return bands.map((band) => {
      const x = Math.max(0, left(plot, band.begin));
      return { x, end: Math.max(x + 2, Math.min(width, band.end === null ? width : left(plot, band.end))), band };
    }).filter((one) => one.x <= width && one.end >= 0 && (one.band.end === null || left(plot, one.band.end) >= 0));
  }

  /** Return the colours of all kinds in the present theme. */
  const palette = (colour) => Object.fromEntries(Object.entries(STYLES).map(([kind, [name]]) => [kind, colour(name)]));

  const ofKinds = (list, kinds) => list.filter((one) => kinds.includes(one.what));

  function shape(ctx, form, x, y, r) {
    ctx.beginPath();
    if (form === "up") { ctx.moveTo(x, y - r); ctx.lineTo(x + r, y + r); ctx.lineTo(x - r, y + r); }
    else if (form === "down") { ctx.moveTo(x, y + r); ctx.lineTo(x + r, y - r); ctx.lineTo(x - r, y - r); }
    else if (form === "diamond") { ctx.moveTo(x, y - r); ctx.lineTo(x + r, y); ctx.lineTo(x, y + r); ctx.lineTo(x - r, y); }
    else ctx.arc(x, y, r, 0, 2 * Math.PI);
    ctx.fill();
  }

  /** Tint the plot behind the curve where a state lasted. */
  function tint(plot, found, colour) {
    const { ctx, bbox } = plot, s = devicePixelRatio, colours = palette(colour);
    ctx.save();
    ctx.globalAlpha = 0.1;
    for (const { x, end, band } of spans(plot, found.bands)) {
      ctx.fillStyle = colours[band.what];
      ctx.fillRect(bbox.left + x * s, bbox.top, (end - x) * s, bbox.height);
    }
    ctx.restore();
  }

  function draw(plot, element, found, colour) {
    const { ctx, bbox } = plot, s = devicePixelRatio, colours = palette(colour);
    const bottom = bbox.top + bbox.height;
    ctx.save();
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.font = `${9.5 * s}px system-ui, sans-serif`;
    lanes(element, found).forEach((kinds, number) => {
      const y = bottom + (number + 0.5) * LANE * s + 2 * s;
      for (const { x, end, band } of spans(plot, ofKinds(found.bands, kinds))) {
        const box = [bbox.left + x * s, y - 2.5 * s, Math.max(1.5, end - x - 1) * s, 5 * s];
        ctx.fillStyle = ctx.strokeStyle = colours[band.what];
        ctx.lineWidth = s;
        if (STYLES[band.what][1] === "full") ctx.fillRect(...box); else ctx.strokeRect(box[0] + s / 2, box[1] + s / 2, box[2] - s, box[3] - s);
      }
      for (const kind of kinds) {
        ctx.fillStyle = colours[kind];
        for (const { x, marks } of clusters(plot, ofKinds(found.marks, [kind]))) {
          if (kind === "rollback") {
            ctx.globalAlpha = 0.35;
            ctx.fillRect(bbox.left + x * s - s / 2, bbox.top, s, bbox.height);
            ctx.globalAlpha = 1;
          }
          shape(ctx, STYLES[kind][1], bbox.left + x * s, y, 3.5 * s);
          if (marks.length > 1) ctx.fillText(marks.length, bbox.left + (x + 6) * s, y);
        }
      }
    });
    ctx.restore();
  }

  const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19) + "Z";

  function bandText(band) {
    const end = band.end === null ? " on" : ` to ${clock(band.end)}`;
    return `${clock(band.begin)}${end}: ${band.what}, ${band.text}${band.ended ? `\nended: ${band.ended}` : ""}`;
  }

  /** Return what stands where the pointer is; empty if nothing does. */
  function textAt(plot, element, found, event) {
    const box = plot.over.getBoundingClientRect();
    const x = event.clientX - box.left;
    const kinds = lanes(element, found)[Math.floor((event.clientY - box.bottom - 2) / LANE)];
    if (!kinds) return "";
    const near = clusters(plot, ofKinds(found.marks, kinds)).filter((one) => x > one.x - NEAR && x < one.x + 2 * NEAR);
    if (near.length) {
      const marks = near[near.length - 1].marks;
      const rest = marks.length > MOST_TEXTS ? [`and ${marks.length - MOST_TEXTS} more`] : [];
      return [...marks.slice(0, MOST_TEXTS).map((mark) => `${clock(mark.time)} ${mark.text}`), ...rest].join("\n");
    }
    const covering = spans(plot, ofKinds(found.bands, kinds)).filter((one) => x >= one.x - 2 && x <= one.end + 2);
    return covering.slice(-1).map((one) => bandText(one.band)).join("");
  }

  /** Show what stands under the pointer. `chart` returns the present plot and its data, or nothing. */
  function follow(element, chart) {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    const show = (event) => {
      const known = chart();
      const text = known?.plot ? textAt(known.plot, element, known.data, event) : "";
      tip.hidden = !text;
      if (!text) return;
      tip.textContent = text;
      if (!tip.isConnected) element.append(tip);
      const box = element.getBoundingClientRect();
      tip.style.left = "0"; // where it is as wide as it may be
      tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left - 20, box.width - tip.offsetWidth))}px`;
      tip.style.top = `${event.clientY - box.top + 14}px`;
    };
    element.addEventListener("pointermove", show);
    element.addEventListener("pointerdown", show);
    element.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  return { lanes, room, tint, draw, follow };
})();
