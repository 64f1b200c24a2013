// Draws the charts of the page with uPlot from the numbers in the JSON block "study", each in place of its static
// figure, which stays where no script runs, in print, and if a chart fails. A scheme hidden in one is hidden in all.
"use strict";
(() => {
  const study = JSON.parse(document.getElementById("study").textContent);
  const hidden = new Set(); // labels
  const refreshers = []; // one a chart: shows what is chosen now
  addEventListener("error", ({message}) => { document.documentElement.dataset.failed = message; });

  // --- words and marks ---------------------------------------------------------------------------------------------

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  function number(value, digits = 3) {
    const whole = Math.abs(value) >= 1000;
    const text = whole ? value.toLocaleString("en", {maximumFractionDigits: 0}) : value.toFixed(digits);
    return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
  }

  // A mean with half the width of its interval, where it has one.
  const spread = (digits, mean, low, high) =>
    number(mean, digits) + (high > low ? ` ± ${number((high - low) / 2, digits)}` : "");

  // Digits for the values of lines: three, and four for small ones that have no unit of their own.
  const digitsOf = (name, lines) =>
    name.includes("nats/token") || lines.some(({mean}) => mean.some((value) => Math.abs(value) >= 1)) ? 3 : 4;

  // Polygons around 0, of a radius near 1: the markers of the static figures.
  const ring = (radii, start = -90) => radii.map((radius, k) => {
    const angle = (start + (360 * k) / radii.length) * Math.PI / 180;
    return [radius * Math.cos(angle), radius * Math.sin(angle)];
  });
  const A = 0.35;
  const plus = [
    [-A, -1.2], [A, -1.2], [A, -A], [1.2, -A], [1.2, A], [A, A], [A, 1.2], [-A, 1.2], [-A, A], [-1.2, A], [-1.2, -A], [-A, -A],
  ];
  const SHAPES = {
    o: ring(Array(24).fill(1)),
    s: ring(Array(4).fill(1.25), -45),
    D: ring(Array(4).fill(1.3)),
    "^": ring(Array(3).fill(1.35)),
    v: ring(Array(3).fill(1.35), 90),
    P: plus,
    X: plus.map(([x, y]) => [(x - y) * 0.71, (x + y) * 0.71]),
    "*": ring([1.5, 0.6, 1.5, 0.6, 1.5, 0.6, 1.5, 0.6, 1.5, 0.6]),
  };

  function icon(label) {
    const {color, marker} = study.looks[label];
    const path = SHAPES[marker].map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join("L");
    const made = element("span", {class: "icon", "aria-hidden": "true"});
    made.innerHTML = `<svg viewBox="-2 -2 4 4"><path fill="${color}" d="M${path}Z"/></svg>`;
    return made;
  }

  function trace(ctx, points) {
    ctx.beginPath();
    points.forEach(([x, y], k) => (k ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  }

  function mark(ctx, label, x, y, size) {
    const {color, marker} = study.looks[label];
    trace(ctx, SHAPES[marker].map(([dx, dy]) => [x + dx * size, y + dy * size]));
    ctx.fillStyle = color;
    ctx.fill();
  }

  const ofPage = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

  // --- one plot ----------------------------------------------------------------------------------------------------

  // uPlot remembers the styles that it has set, so what else draws must leave them as they were.
  const keeping = (draw) => (u, ...more) => {
    u.ctx.save();
    draw(u, ...more);
    u.ctx.restore();
  };

  // A uPlot in `target`. uPlot knows transformed values only (see `curves`), so that every axis is a linear one to it.
  //   xs, series  the places, ascending, and for each line {label, values, dash}, null where it has none
  //   xTicks, xText, yTicks, yText  where an axis has ticks (null: uPlot chooses), and their words
  //   range, xRange (low, high)  the ends of the axes that show all; under, over (u)  what is drawn below and above the lines
  function plot(target, spec) {
    const axis = (ticks, text, more) => ({
      stroke: () => ofPage("--ink"),
      grid: {stroke: () => ofPage("--line"), width: 1},
      ticks: {show: false},
      border: {show: true, stroke: () => ofPage("--soft"), width: 1},
      font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif",
      values: (u, splits, _axis, _space, step) => splits.map((value) => text(value, step)),
      ...(ticks && {splits: (u, _axis, low, high) => ticks(u, low, high)}),
      ...more,
    });
    const marks = (u, index) => {
      if (index === 0 || spec.series[index - 1].dash) return;
      const {label} = spec.series[index - 1], {left, top, width, height} = u.bbox, size = (spec.size ?? 3.4) * uPlot.pxRatio;
      u.data[index].forEach((value, k) => {
        if (value === null) return;
        const x = u.valToPos(u.data[0][k], "x", true), y = u.valToPos(value, "y", true);
        const inside = x > left - 2 && x < left + width + 2 && y > top - 2 && y < top + height + 2;
        if (inside) mark(u.ctx, label, x, y, size);
      });
    };
    const options = {
      width: Math.max(target.clientWidth, 100),
      height: spec.height,
      padding: [10, spec.room, 0, 0],
      legend: {show: false},
      cursor: {
        y: false,
        drag: {x: true, y: true, uni: 24},
        points: {size: 8, width: 0, fill: (u, index) => u.series[index]._stroke},
      },
      scales: {
        x: {time: false, range: (u, low, high) => {
          const whole = low <= spec.xs[0] && high >= spec.xs.at(-1);
          if (whole && spec.xRange) return spec.xRange(low, high);
          return [low - 0.03 * (high - low), high + 0.03 * (high - low)];
        }},
        y: {range: (u, low, high) => (low === null ? [0, 1] : spec.range(low, high))},
      },
      axes: [
        axis(spec.xTicks, spec.xText, {label: spec.xName, labelSize: spec.xName ? 20 : 0, labelGap: 0, size: 28}),
        axis(spec.yTicks, spec.yText, {size: (u, values) => 14 + 7 * Math.max(1, ...(values ?? []).map((text) => `${text ?? ""}`.length))}),
      ],
      series: [{}, ...spec.series.map(({label, dash}) => ({
        stroke: study.looks[label].color,
        width: spec.lines === false ? 0 : dash ? 1.2 : 1.8,
        ...(dash && {dash: [6, 5]}),
        spanGaps: true,
        points: {show: false},
      }))],
      hooks: {
        drawAxes: [keeping(spec.under)],
        drawSeries: [keeping(marks)],
        draw: [keeping(spec.over)],
        setCursor: [(u) => spec.hover(u.cursor.idx ?? null)],
      },
    };
    const made = new uPlot(options, [spec.xs, ...spec.series.map(({values}) => values)], target);
    new ResizeObserver(() => {
      const width = target.clientWidth;
      if (width && width !== made.width) made.setSize({width, height: spec.height});
    }).observe(target);
    return made;
  }

  function reset(u) {
    u.setData(u.data);
  }

  // Arrow keys read the values along the lines, Escape shows all again.
  function byKeys(target, title, plotted) {
    target.setAttribute("tabindex", "0");
    target.setAttribute("role", "application");
    target.setAttribute("aria-label", `${title}. Arrow keys read values, Escape shows all.`);
    let at = -1;
    target.addEventListener("keydown", (event) => {
      const u = plotted(), step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (event.key === "Escape") reset(u);
      if (!step) return;
      event.preventDefault();
      at = Math.min(Math.max((u.cursor.idx ?? at) + step, 0), u.data[0].length - 1);
      u.setCursor({left: u.valToPos(u.data[0][at], "x"), top: u.over.clientHeight / 2});
    });
  }

  function clipped(u, draw) {
    const {ctx, bbox} = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    draw(ctx, bbox);
    ctx.restore();
  }

  function dotted(ctx, points) {
    ctx.strokeStyle = ofPage("--ink");
    ctx.lineWidth = uPlot.pxRatio;
    ctx.setLineDash([2 * uPlot.pxRatio, 3 * uPlot.pxRatio]);
    trace(ctx, points);
    ctx.stroke();
    ctx.setLineDash([]);
  }

  function write(ctx, text, x, y, align, baseline, color = ofPage("--ink")) {
    ctx.font = `${12 * uPlot.pxRatio}px system-ui, sans-serif`;
    ctx.fillStyle = color;
    ctx.textAlign = align;
    ctx.textBaseline = baseline;
    ctx.fillText(text, x, y);
  }

  // --- the schemes below a chart: buttons that choose, with the values at the cursor -------------------------------

  function legend(labels) {
    const head = element("output", {class: "soft"});
    const values = new Map(labels.map((label) => [label, element("span", {class: "value"})]));
    const buttons = labels.map((label) => element("button", {
      type: "button",
      "data-label": label,
      title: "Click: show or hide. With Shift: this one alone.",
      onclick: (event) => choose(label, event.shiftKey),
    }, icon(label), element("span", {class: "name"}, label), values.get(label)));
    const every = element("button", {type: "button", class: "every", onclick: () => choose(null)}, "show all");
    const root = element("div", {class: "legend"}, head, ...buttons, every);
    const tell = (title, text) => {
      head.textContent = title;
      for (const [label, cell] of values) cell.textContent = text(label) ?? "–";
    };
    const refresh = () => {
      for (const button of buttons) button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.label)));
      every.hidden = !labels.some((label) => hidden.has(label));
    };
    refresh();
    return {root, tell, refresh};
  }

  // Show or hide a scheme in all charts; alone: hide all others; null: show all.
  function choose(label, alone) {
    const shown = label !== null && !hidden.has(label);
    if (label === null) hidden.clear();
    else if (alone) {
      Object.keys(study.looks).forEach((each) => hidden.add(each));
      hidden.delete(label);
    } else if (shown) hidden.add(label);
    else hidden.delete(label);
    refreshers.forEach((refresh) => refresh());
  }

  function box(text, onchange) {
    const input = element("input", {type: "checkbox", onchange: () => onchange(input.checked)});
    return element("label", {}, input, ` ${text}`);
  }

  function select(name, options, onchange) {
    const made = element("select", {"aria-label": name, onchange: () => onchange(Number(made.value))});
    options.forEach((text, k) => made.append(element("option", {value: k}, text)));
    return element("label", {}, `${name} `, made);
  }

  // --- curves ------------------------------------------------------------------------------------------------------

  const ascending = (values) => [...new Set(values)].sort((a, b) => a - b);
  const placesOf = (lines) => ascending(lines.flatMap((line) => line.x));

  // Where a place stands on a log2 axis; 0 stands one step left of the first of the others.
  function onLog2(xs) {
    const first = xs.find((x) => x > 0) ?? 1;
    return (x) => (x > 0 ? Math.log2(x) : Math.log2(first) - 1);
  }

  const along = (line, xs, up) => xs.map((x) => {
    const k = line.x.indexOf(x);
    return k < 0 ? null : up(line.mean[k]);
  });

  // The words of ticks `step` apart.
  const byStep = (value, step) => value.toFixed(`${Number(step.toPrecision(3))}`.split(".")[1]?.length ?? 0).replace("-", "−");

  const MANTISSAS = [[1], [1, 3], [1, 2, 5], [1, 2, 3, 4, 5, 7], [1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9]];

  // Ticks between two powers of ten, themselves as powers of ten.
  function logTicks(low, high) {
    let found = [];
    for (const mantissas of MANTISSAS) {
      found = [];
      for (let power = Math.floor(low); power <= high; power += 1) {
        found.push(...mantissas.map((each) => power + Math.log10(each)).filter((each) => each >= low && each <= high));
      }
      if (found.length >= 4) break;
    }
    return found;
  }

  const someOf = (xs, place) => (u, low, high) => {
    const inside = xs.map(place).filter((x) => x >= low && x <= high);
    const most = Math.max(2, Math.floor((u.bbox.width || u.width) / uPlot.pxRatio / 46));
    return inside.filter((_, k) => k % Math.ceil(inside.length / most) === 0);
  };

  // The ends of a y axis that shows all of the lines, and of their intervals what does not crush the picture.
  function limits(low, high, rules, ends, span) {
    low = Math.min(low, ...rules);
    high = Math.max(high, ...rules);
    const beyond = study.beyond * (high - low);
    [low, high] = [Math.max(low - beyond, Math.min(low, ...ends)), Math.min(high + beyond, Math.max(high, ...ends))];
    const wider = Math.max(0.05 * (high - low), (span - (high - low)) / 2) || 0.5;
    return [low - wider, high + wider];
  }

  // The place whose values are shown where no cursor is: the last of those with the most lines that are not at 0.
  function homeOf(lines, xs) {
    const shown = xs.map((x) => lines.filter((line) => line.x.includes(x) && line.mean[line.x.indexOf(x)] !== 0).length);
    return shown.lastIndexOf(Math.max(...shown));
  }

  function curves(chart, live) {
    const {lines, dashed} = chart, xs = placesOf(lines), place = onLog2(xs), last = xs[xs.length - 1];
    const text = new Map(xs.map((x) => [place(x), String(x)]));
    const named = new Map(lines.map(({label, x}) => [label, x.at(-1) === last ? label : `${label} (to ${x.at(-1)})`]));
    const rules = [...chart.levels.map(([, level]) => level), ...(chart.zero ? [0] : [])];
    const digits = digitsOf(chart.y, lines);
    let log = false, control = false;
    const up = (value) => (log ? Math.log10(Math.max(value, 1e-12)) : value);
    const visible = () => lines.filter(({label}) => !hidden.has(label));
    const series = () => [...lines, ...dashed].map((line, k) => ({
      label: line.label, values: along(line, xs, up), dash: k >= lines.length,
    }));

    function under(u) {
      const x = (value) => u.valToPos(place(value), "x", true), y = (value) => u.valToPos(up(value), "y", true);
      clipped(u, (ctx, {left, top, width, height}) => {
        for (const line of visible().filter(({low}) => low)) {
          const side = (ends) => line.x.map((each, k) => [x(each), y(ends[k])]);
          trace(ctx, [...side(line.high), ...side(line.low).reverse()]);
          ctx.fillStyle = `${study.looks[line.label].color}30`;
          ctx.fill();
        }
        if (chart.zero && !log) dotted(ctx, [[left, y(0)], [left + width, y(0)]]);
        for (const [name, level] of chart.levels) {
          const at = y(level), below = at < top + 18 * uPlot.pxRatio;
          dotted(ctx, [[left, at], [left + width, at]]);
          write(ctx, name, left + width - 4, at + (below ? 3 : -3), "right", below ? "top" : "bottom");
        }
        if (chart.mark !== null) {
          const at = x(chart.mark), leftHalf = at < left + width / 2;
          dotted(ctx, [[at, top], [at, top + height]]);
          write(ctx, `train length ${chart.mark}`, at + (leftHalf ? 4 : -4), top + 2, leftHalf ? "left" : "right", "top");
        }
      });
    }

    // The names at the right, near the ends of their lines, none over another.
    function over(u) {
      const {left, top, width, height} = u.bbox, gap = 14 * uPlot.pxRatio;
      const ends = visible().flatMap((line) => {
        const inView = line.x.filter((x) => place(x) <= u.scales.x.max);
        if (!inView.length) return [];
        const k = inView.length - 1;
        return [{label: line.label, x: u.valToPos(place(line.x[k]), "x", true), y: u.valToPos(up(line.mean[k]), "y", true)}];
      }).filter(({y}) => y >= top && y <= top + height).sort((a, b) => a.y - b.y);
      const at = apart(ends.map(({y}) => y), gap);
      const shift = at.length ? Math.min(0, top + height - at.at(-1)) || Math.max(0, top - at[0]) : 0;
      ends.forEach(({label, x, y}, k) => {
        const {color} = study.looks[label], edge = left + width;
        if (x > edge - 30 * uPlot.pxRatio) {
          u.ctx.strokeStyle = color;
          u.ctx.lineWidth = 0.7 * uPlot.pxRatio;
          trace(u.ctx, [[Math.min(x + 5 * uPlot.pxRatio, edge), y], [edge + 8 * uPlot.pxRatio, at[k] + shift]]);
          u.ctx.stroke();
        }
        write(u.ctx, named.get(label), edge + 11 * uPlot.pxRatio, at[k] + shift, "left", "middle", color);
      });
    }

    const key = legend(lines.map(({label}) => label));
    const home = homeOf(lines, xs);
    function hover(k) {
      const x = xs[k ?? home];
      key.tell(`${chart.x}: ${x}`, (label) => {
        const line = lines.find((each) => each.label === label), at = line.x.indexOf(x);
        return at < 0 ? null : spread(digits, line.mean[at], line.low?.[at], line.high?.[at]);
      });
    }

    const target = element("div", {class: "plot"});
    const positive = lines.every(({mean}) => mean.every((value) => value > 0));
    const tools = element("div", {class: "tools"},
      ...(positive ? [box("log y axis", (checked) => { log = checked; redraw(); })] : []),
      ...(dashed.length ? [box(chart.control, (checked) => { control = checked; refresh(); })] : []),
      element("button", {type: "button", onclick: () => reset(made)}, "reset zoom"),
    );
    live.append(element("div", {class: "title"}, chart.title), tools, element("div", {class: "soft"}, chart.y), target, key.root);
    const made = plot(target, {
      xs: xs.map(place),
      series: series(),
      height: 300,
      room: 20 + 7 * Math.max(...[...named.values()].map((name) => name.length)),
      xName: chart.x,
      xTicks: someOf(xs, place),
      xText: (value) => text.get(value),
      yTicks: null,
      yText: (value, step) => (log ? tickOfLog(value) : byStep(value, step)),
      range: (low, high) => {
        const ends = visible().flatMap((line) => [...(line.low ?? []), ...(line.high ?? [])]).map(up);
        return limits(low, high, log ? rules.filter((each) => each > 0).map(up) : rules, ends, log ? 0 : chart.span);
      },
      under, over, hover,
    });
    const linear = made.axes[1].splits;
    made.axes[1].splits = (u, axis, low, high, ...more) => (log ? logTicks(low, high) : linear(u, axis, low, high, ...more));

    function redraw() {
      made.setData([xs.map(place), ...series().map(({values}) => values)]);
    }
    function refresh() {
      key.refresh();
      made.batch(() => [...lines, ...dashed].forEach(({label}, k) => {
        made.setSeries(k + 1, {show: !hidden.has(label) && (k < lines.length || control)});
      }));
    }
    byKeys(target, chart.title, () => made);
    refresh();
    hover(null);
    return refresh;
  }

  const tickOfLog = (value) => `${Number((10 ** value).toPrecision(3))}`;

  // Places at least `gap` apart, ascending like `wanted` and as near to it as that allows.
  function apart(wanted, gap) {
    const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length, blocks = [];
    wanted.forEach((place, k) => {
      blocks.push([place - k * gap]);
      while (blocks.length > 1 && mean(blocks.at(-2)) > mean(blocks.at(-1))) blocks.push([...blocks.splice(-2).flat()]);
    });
    return blocks.flatMap((block) => block.map(() => mean(block))).map((place, k) => place + k * gap);
  }

  // --- quality against cost ----------------------------------------------------------------------------------------

  function trades(chart, live) {
    const target = element("div", {class: "plot"}), y = element("div", {class: "soft"});
    const caption = live.parentElement.querySelector("figcaption"); // begins with the front in words
    const key = legend(chart.labels);
    key.root.classList.add("pairs");
    let cost = 0, quality = 0, told = chart.told[0][0], made = null, show = () => {};
    live.append(
      element("div", {class: "title"}, chart.title),
      element("div", {class: "tools"},
        select("Cost", chart.costs.map((axis) => `${axis.name}, ${axis.better} is better`), (k) => { cost = k; build(); }),
        select("Quality", chart.qualities.map((axis) => `${axis.name}, ${axis.better} is better`), (k) => { quality = k; build(); }),
        element("button", {type: "button", onclick: () => reset(made)}, "reset zoom"),
      ),
      y, target, key.root,
    );

    function build() {
      const across = chart.costs[cost], upward = chart.qualities[quality];
      const both = chart.labels.filter((label) => across.points[label] && upward.points[label]);
      const points = new Map(both.map((label) => [label, [across.points[label], upward.points[label]]]));
      const xs = ascending(both.map((label) => across.points[label][0]));
      const visible = () => both.filter((label) => !hidden.has(label));

      function under(u) {
        const x = (value) => u.valToPos(value, "x", true), y = (value) => u.valToPos(value, "y", true);
        clipped(u, (ctx) => {
          const front = chart.fronts[cost][quality].map((label) => points.get(label)).map(([a, b]) => [a[0], b[0]]);
          const stairs = front.flatMap(([a, b], k) => (k ? [[a, front[k - 1][1]], [a, b]] : [[a, b]]));
          dotted(ctx, stairs.map(([a, b]) => [x(a), y(b)]));
          for (const label of visible()) {
            const [[a, left, right], [b, low, high]] = points.get(label);
            ctx.strokeStyle = study.looks[label].color;
            ctx.lineWidth = uPlot.pxRatio;
            trace(ctx, [[x(left), y(b)], [x(right), y(b)]]);
            ctx.stroke();
            trace(ctx, [[x(a), y(low)], [x(a), y(high)]]);
            ctx.stroke();
          }
        });
      }

      // Each name beside its mark, where no other one is.
      function over(u) {
        const {left, top, width, height} = u.bbox, ratio = uPlot.pxRatio, taken = [];
        u.ctx.font = `${12 * ratio}px system-ui, sans-serif`;
        for (const label of visible()) {
          const [[a], [b]] = points.get(label), x = u.valToPos(a, "x", true), y = u.valToPos(b, "y", true);
          if (x < left || x > left + width || y < top || y > top + height) continue;
          const wide = u.ctx.measureText(label).width;
          const places = [-0.7, 0.7, -1.7, 1.7, -2.7, 2.7].flatMap((step) => [6 * ratio, -6 * ratio - wide].map((aside) => (
            {start: x + aside, end: x + aside + wide, middle: y + step * 13 * ratio})));
          const free = ({start, end, middle}) => start > left && end < left + width + 60 * ratio
            && taken.every((one) => start > one.end || end < one.start || Math.abs(middle - one.middle) > 12 * ratio);
          const chosen = places.find(free) ?? places[0];
          taken.push(chosen);
          write(u.ctx, label, chosen.start, chosen.middle, "left", "middle", study.looks[label].color);
        }
      }

      made?.destroy();
      y.textContent = `${upward.name}, ${upward.better} is better`;
      caption.textContent = caption.textContent.replace(told, chart.told[cost][quality]);
      told = chart.told[cost][quality];
      key.tell(`${across.name}; ${upward.name}`, (label) => points.get(label)?.map((ends) => spread(3, ...ends)).join("; "));
      made = plot(target, {
        xs,
        series: both.map((label) => ({label, values: xs.map((x) => (x === across.points[label][0] ? upward.points[label][0] : null))})),
        height: 320,
        room: 60,
        size: 5,
        lines: false,
        xRange: (low, high) => limits(low, high, [], both.flatMap((label) => across.points[label]), across.span),
        xName: `${across.name}, ${across.better} is better`,
        xTicks: null,
        xText: (value, step) => (value >= 1000 ? number(value) : byStep(value, step)),
        yTicks: null,
        yText: byStep,
        range: (low, high) => limits(low, high, [], visible().flatMap((label) => upward.points[label]), upward.span),
        under, over,
        hover: () => {},
      });
      show = () => made.batch(() => both.forEach((label, k) => made.setSeries(k + 1, {show: !hidden.has(label)})));
      show();
    }
    build();
    return () => { key.refresh(); show(); };
  }

  // --- small multiples ---------------------------------------------------------------------------------------------

  function panels(measures, live) {
    const grid = element("div"), y = element("div", {class: "soft"});
    const labels = [...new Set(measures.flatMap(({panels: all}) => all.flatMap(({lines}) => lines.map(({label}) => label))))];
    const key = legend(labels);
    let plots = [];
    live.append(
      element("div", {class: "tools"},
        select("Show", measures.map(({title}) => title), (k) => build(measures[k])),
        element("button", {type: "button", onclick: () => plots.forEach(({u}) => reset(u))}, "reset zoom")),
      y, grid, key.root,
    );

    function build(measure) {
      plots.forEach(({u}) => u.destroy());
      grid.replaceChildren();
      y.textContent = measure.y;
      const every = measure.panels.flatMap(({lines}) => lines), xs = placesOf(every), place = onLog2(xs);
      const text = new Map(xs.map((x) => [place(x), String(x)]));
      const shared = () => {
        const values = every.filter(({label}) => !hidden.has(label)).flatMap(({mean}) => mean);
        return values.length ? limits(Math.min(...values), Math.max(...values), measure.zero ? [0] : [], [], measure.span) : [0, 1];
      };
      const rows = new Map(measure.panels.map(({row}) => [row, element("div", {class: "panels"})]));
      const targets = measure.panels.map(({row, title}) => {
        const target = element("div", {class: "plot"});
        rows.get(row).append(element("div", {}, element("div", {class: "soft"}, title), target));
        return target;
      });
      grid.append(...rows.values());
      plots = measure.panels.map(({title, lines, mark: length}, k) => {
        const u = plot(targets[k], {
          xs: xs.map(place),
          series: lines.map((line) => ({label: line.label, values: along(line, xs, (value) => value)})),
          height: 190,
          room: 12,
          size: 2.4,
          xName: measure.x,
          xTicks: someOf(xs, place),
          xText: (value) => text.get(value),
          yTicks: null,
          yText: byStep,
          range: shared,
          under: (plotted) => clipped(plotted, (ctx, {left, top, width, height}) => {
            const at = plotted.valToPos(place(length ?? xs[0]), "x", true), zero = plotted.valToPos(0, "y", true);
            if (length !== null) dotted(ctx, [[at, top], [at, top + height]]);
            if (measure.zero) dotted(ctx, [[left, zero], [left + width, zero]]);
          }),
          over: () => {},
          hover: (at) => {
            if (at === null) return;
            key.tell(`${title}, ${measure.x}: ${xs[at]}`, (label) => {
              const line = lines.find((each) => each.label === label), found = line ? line.x.indexOf(xs[at]) : -1;
              return found < 0 ? null : number(line.mean[found], digitsOf(measure.y, every));
            });
          },
        });
        byKeys(targets[k], `${measure.title}, ${title}`, () => u);
        return {u, lines};
      });
      key.tell("Point at a panel to read its values.", () => "");
      refresh();
    }
    function refresh() {
      key.refresh();
      for (const {u, lines} of plots) {
        u.batch(() => lines.forEach(({label}, k) => u.setSeries(k + 1, {show: !hidden.has(label)})));
      }
    }
    build(measures[0]);
    return refresh;
  }

  // --- all of them, and what may be copied -------------------------------------------------------------------------

  function draw(figure) {
    const live = element("div", {class: "live"}), {chart} = figure.dataset;
    const content = chart === "panels" ? study.panels : study.charts[chart];
    figure.prepend(live);
    try {
      refreshers.push(({curves, trades}[content.kind] ?? panels)(content, live));
      figure.classList.add("drawn");
      return true;
    } catch (error) {
      live.remove();
      document.documentElement.dataset.failed = `${chart}: ${error}`;
      console.error(error);
      return false;
    }
  }

  function copyable(block) {
    const button = element("button", {type: "button", onclick: () => {
      getSelection().selectAllChildren(block);
      button.textContent = document.execCommand("copy") ? "copied" : "selected: copy it by the keyboard";
    }}, "copy");
    block.before(button);
  }

  const figures = [...document.querySelectorAll("figure[data-chart]")];
  document.documentElement.dataset.charts = String(figures.filter(draw).length);
  document.querySelectorAll("[data-copy]").forEach(copyable);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => refreshers.forEach((refresh) => refresh()));
})();
