// Charts over steps: lines with bands, and stacked parts. Each can be read with the mouse and with the arrow keys.
"use strict";

const PAD = { left: 46, right: 14, top: 10, bottom: 22 }, LANE = 15;
/** Steps whose mean stands for the start of a run, and for its end. */
const ENDS = 5;
/** What a picture does not show, as a part of a step of its axis: shares that are rounded sum to a little more than 1. */
const HAIR = 1e-3;
/** How a chart of shares is drawn. */
const SHARES = { form: percent, axis: value => `${Math.round(100 * value)} %`, y: [0, 1] };

/** A round number that lies about `count` times between low and high. */
function roundStep(low, high, count) {
  const rough = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].map(one => one * power).find(one => one >= rough * (1 - HAIR));
}

/** Round numbers between low and high, about `count` of them. */
function ticks(low, high, count, step = roundStep(low, high, count)) {
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}

/** Means of neighbours, so that no more points are drawn than can be seen. */
function thinned(points, most) {
  if (points.length <= most) return points;
  const size = Math.ceil(points.length / most), found = [];
  for (let at = 0; at < points.length; at += size) {
    const part = points.slice(at, at + size);
    found.push(part[0].map((_, place) => part.reduce((sum, point) => sum + point[place], 0) / part.length));
  }
  return found;
}

/** Mean over the last `width` points, where there are any. */
function smoothed(points, width) {
  let sum = 0;
  return points.map(([x, y], at) => {
    sum += y - (at >= width ? points[at - width][1] : 0);
    return [x, sum / Math.min(at + 1, width)];
  });
}

/** A card without a picture is hidden; `absent` says that it is, and why. Whether it is so. */
function bare(card, none, why = "") {
  card.root.hidden = none;
  card.why = why;
  return none;
}

/** One line for the cards of a view that are hidden. */
function absent(cards) {
  const hidden = cards.filter(card => card.root.hidden).map(card => card.why ? `${card.title} (${card.why})` : card.title);
  return hidden.length ? `Nothing on record: ${hidden.join("; ")}.` : "";
}

/** A line moved to the axis that is chosen. */
function moved(one) {
  const of = one.of || SSP, along = points => points.map(([step, ...values]) => [placed(step, of), ...values]);
  return { ...one, points: along(one.points), band: one.band ? along(one.band) : one.band };
}

class Chart {
  /** A card with a title, a legend that shows values, and a picture `height` pixels high. */
  constructor(title, { height = 150, classes = "", note = "" } = {}) {
    this.legend = h("span.legend", { "aria-live": "off" });
    this.svg = s("svg", { tabindex: "0", role: "img", height });
    this.note = h("p.note", { hidden: !note }, note);
    this.root = h(`figure.card${classes}`, {}, h("figcaption", {}, h("h2", {}, title), this.legend), this.svg, this.note);
    Object.assign(this, { title, height, at: null, spec: { series: [] } });
    this.svg.addEventListener("pointermove", event => this.point(event.clientX - this.svg.getBoundingClientRect().left));
    this.svg.addEventListener("pointerleave", () => this.read(null));
    this.svg.addEventListener("blur", () => this.read(null));
    this.svg.addEventListener("keydown", event => this.key(event));
  }

  /** Another title. */
  name(title) {
    this.title = `${title[0].toUpperCase()}${title.slice(1)}`;
    put(this.root.querySelector("h2"), this.title);
  }

  /** `series`: {name, colour (a property of the style sheet), points: [x, y], band: [x, low, high], dash, faint: also
   *  each value behind the mean; of: the run, where it is another one}; `dash` may be a pattern; `marks`: {from, to, text} where an alarm lasted;
   *  `ends`: how many values stand for the start and the end; `range`: [low, high, text] of healthy values; `y`: [low, high] at least or at most; `form`: of a value; `stack`: parts of a whole, where
   *  one that is not on record is 0; `xs`: places at which nothing may be on record. */
  draw(spec) {
    this.spec = { form: plain, unit: "step", xs: [], ends: ENDS, ...spec };
    if (this.spec.unit === "step" && !spec.stack && SSP.axis !== "step") {
      this.spec = { ...this.spec, unit: SSP.axis, xform: compact, xs: [], series: spec.series.map(moved),
        marks: (spec.marks || []).map(mark => ({ ...mark, from: placed(mark.from, SSP), to: placed(mark.to, SSP) })) };
    }
    this.root.hidden = false; // a hidden card has no width
    const width = this.width = Math.max(200, this.root.clientWidth - 24), { series: all, stack } = this.spec;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.replaceChildren();
    const shown = all.filter(one => one.points.length);
    this.xs = shown.length ? [...new Set([...this.spec.xs, ...shown.flatMap(one => one.points.map(point => point[0]))])].sort((one, other) => one - other) : [];
    if (bare(this, !this.xs.length, this.spec.empty)) return;
    this.legend.replaceChildren();
    const flat = stack ? this.tops(shown) : shown.flatMap(one => [...one.points.map(point => point[1]),
      ...(one.band || []).flatMap(point => point.slice(1))]);
    let low = Math.min(...(this.spec.y ? [this.spec.y[0]] : []), ...ends(flat)),
      high = Math.max(...(this.spec.y ? [this.spec.y[1]] : []), ...ends(flat));
    if (stack) low = 0;
    if (high === low) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const rung = roundStep(low, high, 4); // the first and the last line of the picture have a number
    [low, high] = [Math.floor(low / rung + HAIR) * rung, Math.ceil(high / rung - HAIR) * rung];
    this.lanes = [...new Set((this.spec.marks || []).map(mark => mark.text))]; // alarms of a cause lie above the picture
    this.top = PAD.top + LANE * this.lanes.length;
    const half = stack ? .6 : 0, firstX = this.xs[0] - half, lastX = this.xs[this.xs.length - 1] + half;
    const inner = { w: width - PAD.left - PAD.right, h: this.height - this.top - PAD.bottom };
    this.x = value => PAD.left + (lastX === firstX ? inner.w / 2 : (value - firstX) / (lastX - firstX) * inner.w);
    this.y = value => this.top + (high - value) / (high - low) * inner.h;
    if (this.spec.range) this.healthy(...this.spec.range);
    this.axes(low, high, rung, width);
    if (stack) this.stacked(shown, inner.w);
    else for (const one of shown) this.line(one, inner.w);
    for (const { from, to, text } of this.spec.marks || []) this.mark(Math.max(from, firstX), Math.min(to, lastX), text);
    for (const { at, text } of this.spec.levels || []) this.level(at, text, low, high, width);
    this.cursor = this.svg.appendChild(s("line", { class: "cursor", y1: this.top, y2: this.height - PAD.bottom, visibility: "hidden" }));
    this.svg.setAttribute("aria-label", `${this.title}. ${shown.map(one =>
      `${one.name}: from ${this.spec.form(this.mean(one, -1))} to ${this.spec.form(this.mean(one, 1))}`).join("; ")}. Arrow keys read it.`);
    this.read(this.at);
  }

  axes(low, high, rung, width) {
    for (const tick of ticks(low, high, 4, rung)) {
      const y = this.y(tick);
      this.svg.append(s("line", { class: "gridline", x1: PAD.left, x2: width - PAD.right, y1: y, y2: y }),
        s("text", { x: PAD.left - 6, y: y + 4, "text-anchor": "end" }, (this.spec.axis || compact)(tick)));
    }
    const first = this.xs[0], end = this.xs[this.xs.length - 1], near = (one, other) => Math.abs(this.x(one) - this.x(other)) < 34;
    const inner = ticks(first, end, Math.min(8, width / 80)).filter(one => (Number.isInteger(one) || ["hours", "tokens"].includes(this.spec.unit)) && !near(one, first) && !near(one, end));
    const unit = this.spec.unit.split(" ").pop(), far = this.x(first) - 10 < 7 * unit.length; // so that no letter is cut
    this.svg.append(s("text", { x: far ? 0 : this.x(first) - 10, y: this.height - 5, "text-anchor": far ? "start" : "end" }, unit));
    for (const tick of new Set([first, ...inner, end])) {
      const text = (this.spec.xform || plain)(tick), late = tick === end && end !== first && text.length > 3;
      this.svg.append(s("text", { x: this.x(tick) + (late ? PAD.right : 0), y: this.height - 5, "text-anchor": late ? "end" : "middle" }, text));
    }
  }

  line(one, width) {
    const path = points => points.map(([x, y], at) => `${at ? "L" : "M"}${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`).join("");
    const stroke = `var(--${one.colour})`;
    if (one.band && one.band.length) {
      const band = thinned(one.band, width / 2);
      const outline = path([...band.map(([x, , top]) => [x, top]), ...band.map(([x, bottom]) => [x, bottom]).reverse()]);
      this.svg.append(s("path", { d: `${outline}Z`, "fill-opacity": .14, style: { fill: stroke } }));
    }
    const faint = one.faint && one.points.length > 12;
    if (faint) this.svg.append(s("path", { d: path(thinned(one.points, width / 2)), fill: "none", "stroke-width": 1,
      "stroke-opacity": .3, style: { stroke } }));
    const shown = thinned(faint ? smoothed(one.points, this.window(one)) : one.points, width / 2);
    this.svg.append(s("path", { d: path(shown), fill: "none", "stroke-width": 1.8, "stroke-linejoin": "round",
      "stroke-dasharray": one.dash === true ? "4 3" : one.dash || null, style: { stroke } }));
    if (one.points.length === 1) { // else nothing would be seen
      const [[x, y]] = one.points;
      this.svg.append(s("circle", { cx: this.x(x), cy: this.y(y), r: 2.4, style: { fill: stroke } }));
    }
  }

  window(one) { return Math.max(2, Math.round(one.points.length / 20)); }

  tops(shown) {
    const sums = new Map();
    for (const one of shown) for (const [x, y] of one.points) sums.set(x, (sums.get(x) || 0) + y);
    return [0, ...sums.values()];
  }

  stacked(shown, width) {
    const below = new Map(this.xs.map(x => [x, 0])), place = new Map(this.xs.map((x, at) => [x, at])), keep = Math.ceil(this.xs.length / (width / 2));
    const step = this.x(1) - this.x(0), bar = Math.max(1, step * keep - (step > 5 ? 1 : 0)); // as wide as a step also where some are not on record
    for (const one of shown) {
      let path = "";
      one.points.forEach(([x, y]) => {
        const from = below.get(x);
        below.set(x, from + y);
        if (y > 0 && place.get(x) % keep === 0) path += `M${(this.x(x) - bar / 2).toFixed(1)} ${this.y(from).toFixed(1)}h${bar.toFixed(1)}V${this.y(from + y).toFixed(1)}h${(-bar).toFixed(1)}Z`;
      });
      this.svg.append(s("path", { d: path, "fill-opacity": one.opacity || 1, style: { fill: `var(--${one.colour})` } }));
    }
  }

  /** A part of a stack at one place. */
  part(one, x) { return (one.points.find(point => point[0] === x) || [x, 0])[1]; }

  /** What a line, or a stack's part, is at its start (`side` -1) or end (1): a mean of steps, since one step's rate is of few questions. */
  mean(one, side) {
    const all = this.spec.stack ? this.xs.map(x => this.part(one, x)) : one.points.map(point => point[1]);
    const size = Math.max(1, Math.min(this.spec.ends, side < 0 ? Math.floor(all.length / 2) : all.length)), part = side < 0 ? all.slice(0, size) : all.slice(-size);
    return part.length ? part.reduce((sum, value) => sum + value, 0) / part.length : null;
  }

  level(value, text, low, high, width) {
    if (value < low || value > high) return;
    const y = this.y(value);
    this.svg.append(s("line", { x1: PAD.left, x2: width - PAD.right, y1: y, y2: y, "stroke-dasharray": "2 4", style: { stroke: "var(--dim)" } }),
      s("text", { x: width - PAD.right, y: y < 24 ? y + 13 : y - 4, "text-anchor": "end" }, text));
  }

  /** Between which values a figure is healthy: their ground, which the legend names. */
  healthy(low, high) {
    this.svg.append(s("rect", { class: "healthy", x: PAD.left, y: this.y(high), width: this.width - PAD.left - PAD.right, height: this.y(low) - this.y(high), "fill-opacity": .1, style: { fill: "var(--right)" } }));
  }

  /** An alarm: its steps in the lane of its cause above the picture, its name there, and a line where it began. */
  mark(from, to, text) {
    const left = this.x(from), right = Math.max(this.x(to), left + 3), late = left > this.width - 90, y = 2 + LANE * this.lanes.indexOf(text);
    this.svg.append(s("rect", { x: left, y, width: right - left, height: LANE - 2, "fill-opacity": .2, style: { fill: "var(--bad)" } }),
      s("line", { x1: left, x2: left, y1: y, y2: this.height - PAD.bottom, "stroke-dasharray": "2 3", style: { stroke: "var(--bad)" } }),
      s("text", { x: left + (late ? -4 : 4), y: y + 10, "text-anchor": late ? "end" : "start", class: "mark" }, text));
  }

  point(px) {
    if (!this.xs || !this.xs.length) return;
    let best = 0;
    this.xs.forEach((x, at) => { if (Math.abs(this.x(x) - px) < Math.abs(this.x(this.xs[best]) - px)) best = at; });
    this.read(best);
  }

  key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") this.read(null);
    else if (event.key in moves && this.xs && this.xs.length) {
      const from = this.at === null ? (moves[event.key] < 0 ? this.xs.length : -1) : this.at;
      this.read(Math.min(this.xs.length - 1, Math.max(0, from + moves[event.key])));
      this.legend.setAttribute("aria-live", "polite");
    } else return;
    event.preventDefault();
  }

  /** Show the values at one place of `xs` in the legend; null: those of the end. */
  read(at) {
    if (!this.xs || !this.xs.length) return;
    this.at = at = at === null ? null : Math.min(at, this.xs.length - 1);
    const x = at === null ? null : this.xs[at], { form, unit } = this.spec;
    this.cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at !== null) for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, this.x(x));
    const items = this.spec.series.filter(one => one.points.length).map(one => {
      const found = at === null ? this.mean(one, 1) : this.spec.stack ? this.part(one, x) : (one.points.find(point => point[0] === x) || [])[1];
      return h("span", {}, h(one.dash ? "i.dash" : "i", { style: { "--tone": `var(--${one.colour})`, opacity: String(one.opacity || 1) } }), one.name, h("b", {}, form(found)));
    });
    if (this.spec.range) {
      const [low, high, name] = this.spec.range;
      items.push(h("span", {}, h("i.ground", { style: { "--tone": "var(--right)" } }), `${name} ${Math.round(100 * low)} to ${percent(high).replace(".0", "")}`));
    }
    const where = at === null ? "" : `${unit} ${(this.spec.xform || plain)(x)}`;
    this.legend.replaceChildren(...(where ? [h("span", {}, where)] : []), ...items);
  }
}

/** Lowest and highest, of arrays of any length. */
function ends(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return values.length ? [low, high] : [];
}
