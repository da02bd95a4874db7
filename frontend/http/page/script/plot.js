// One plot: values over the time that there is, with axes, and the values at the moment that is pointed at.

const GAP = 5000; // milliseconds without a value: the line breaks there
const EDGE = { left: 56, right: 10, top: 8, bottom: 22 };
const SPANS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600]; // seconds between two marks of the time

class Plot {
  constructor({ title, unit, most, isWhole, needs, series }) {
    Object.assign(this, { title, unit, most, isWhole, needs, series });
    this.points = []; // { at, values }, a value for each of the series, or null
    this.pointed = null; // a time
    this.legend = make("figcaption");
    this.svg = draw("svg", { role: "img" });
    this.figure = make("figure", { class: "plot", tabindex: "0" }, this.legend, this.svg);
    this.svg.addEventListener("pointermove", (event) => pointAt(this.timeAt(event.offsetX)));
    this.svg.addEventListener("pointerleave", () => pointAt(null));
    this.figure.addEventListener("keydown", (event) => this.step(event));
    this.figure.addEventListener("blur", () => pointAt(null));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  add(at, values) {
    this.points.push({ at, values });
    while (this.points[0].at < at - HOUR) this.points.shift();
  }

  get span() {
    return Math.max(10000, (this.points.at(-1)?.at ?? 0) - (this.points[0]?.at ?? 0));
  }

  timeAt(x) {
    const width = this.svg.clientWidth - EDGE.left - EDGE.right;
    return (this.points.at(-1)?.at ?? 0) - this.span * (1 - (x - EDGE.left) / width);
  }

  // The keyboard's way to point.
  step(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    if (!(event.key in moves) || !this.points.length) return;
    event.preventDefault();
    const at = this.pointed === null ? this.points.length : this.points.indexOf(this.nearest(this.pointed)) + moves[event.key];
    pointAt(this.points[Math.max(0, Math.min(this.points.length - 1, at))].at);
  }

  nearest(time) {
    return this.points.reduce((best, each) => (Math.abs(each.at - time) < Math.abs(best.at - time) ? each : best));
  }

  draw() {
    const width = this.svg.clientWidth, height = this.svg.clientHeight;
    if (!width || !this.points.length) {
      this.svg.replaceChildren(draw("text", { class: "empty", x: width / 2, y: height / 2 }, "No data yet"));
      this.drawLegend(null);
      return;
    }
    const last = this.points.at(-1).at;
    const top = this.most ?? this.rounded(Math.max(0, ...this.points.flatMap((point) => point.values)));
    const x = (at) => EDGE.left + (width - EDGE.left - EDGE.right) * (1 - (last - at) / this.span);
    const y = (value) => height - EDGE.bottom - (height - EDGE.top - EDGE.bottom) * value / top;
    const point = this.pointed === null ? null : this.nearest(this.pointed);
    this.svg.replaceChildren(
      ...this.values(top, y, width), ...this.times(x, last, height),
      ...this.series.map((_, index) => draw("path", { class: `line of-${index}`, d: this.path(index, x, y) })),
      ...(point ? this.cursor(point, x, y, height) : []),
    );
    this.drawLegend(point);
  }

  // 1, 2 or 5 times a power of ten; where there are only whole values, one whose half is whole.
  rounded(value) {
    if (value <= 0) return this.isWhole ? 2 : 1;
    const power = 10 ** Math.floor(Math.log10(value));
    const top = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999);
    return this.isWhole ? top + top % 2 : top;
  }

  values(top, y, width) {
    return [0, top / 2, top].flatMap((value) => [
      draw("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(value), y2: y(value) }),
      draw("text", { class: "value", x: EDGE.left - 6, y: y(value) + 4 }, figure(value) + this.unit),
    ]);
  }

  times(x, last, height) {
    const every = SPANS.find((each) => this.span / 1000 / each <= 5) ?? 3600;
    const marks = [];
    for (let back = 0; back * 1000 <= this.span; back += every) marks.push(back);
    return marks.map((back) => draw("text", { class: back ? "time" : "time now", x: x(last - back * 1000), y: height - 5 }, back ? ago(back) : "now"));
  }

  path(index, x, y) {
    let path = "", before = null;
    for (const { at, values } of this.points) {
      if (values[index] === null) continue;
      path += `${before !== null && at - before < GAP ? "L" : "M"}${x(at).toFixed(1)} ${y(values[index]).toFixed(1)}`;
      if (before === null || at - before >= GAP) path += "h0.01"; // a value by itself is a dot
      before = at;
    }
    return path;
  }

  cursor({ at, values }, x, y, height) {
    const dots = values.flatMap((value, index) => value === null ? [] : [draw("circle", { class: `of-${index}`, cx: x(at), cy: y(value), r: 3.5 })]);
    return [draw("line", { class: "cursor", x1: x(at), x2: x(at), y1: EDGE.top, y2: height - EDGE.bottom }), ...dots];
  }

  // The values that are pointed at, else the newest of each.
  drawLegend(point) {
    const values = this.series.map((_, index) => point ? point.values[index] : this.points.findLast((each) => each.values[index] !== null)?.values[index] ?? null);
    const told = this.series.map(([name], index) => make("span", { class: `told of-${index}` },
      make("b", {}, values[index] === null ? "–" : figure(values[index])), `${this.unit} ${name}`));
    const when = point ? new Date(performance.timeOrigin + point.at).toLocaleTimeString("en-GB") : "";
    this.legend.replaceChildren(make("span", { class: "name" }, this.title), make("time", {}, when), make("span", { class: "all" }, ...told));
    const words = this.series.map(([name], index) => `${values[index] === null ? "no value" : figure(values[index]) + this.unit} ${name}`.trim()).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}${when ? ` at ${when}` : ""}: ${words}`);
  }
}

const figure = (value) => value >= 10000 ? `${(value / 1000).toFixed(value < 1e5 ? 1 : 0)} k` : value.toLocaleString("en", { maximumFractionDigits: value < 1 ? 2 : value < 10 ? 1 : 0 });
const ago = (back) => back < 60 ? `−${back} s` : back < 3600 ? `−${back / 60} min` : `−${back / 3600} h`;
