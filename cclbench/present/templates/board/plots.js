"use strict";
// The explorer and the histories.
(() => {
  const {
    B,
    at,
    el,
    rows,
    metrics,
    figure,
    isShown,
    label,
    number,
    plainly,
    withUnit,
    runLink,
    table,
    fill,
    state,
    readState,
    setState,
  } = Site;

  const colours = ["compute", "transfer", "overlapped", "copy", "graphs", "unmatched", "wait-hatch"];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  // Plots are pixels: those on paper are drawn again in its width.
  const PAPER = 640;
  let widest = Infinity;
  const widthOf = (into) => Math.min(into.clientWidth || 600, widest);
  const axis = (words) => ({
    label: words,
    labelSize: 24,
    stroke: colour("ink"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { stroke: colour("line"), width: 1 },
  });
  // Points [{x, y, kind, hollow, row}]; `joined` names the kinds whose points a line joins.
  const scatter = (into, points, kinds, { x, y, logarithmic = false, joined = [] }) => {
    const sorted = [...points].sort((a, b) => a.x - b.x);
    const series = kinds
      .flatMap((kind, i) =>
        [false, true].map((hollow) => ({
          kind,
          hollow,
          stroke: colour(i < colours.length ? colours[i] : "muted"),
        })),
      )
      .filter(({ kind, hollow }) => sorted.some((point) => point.kind === kind && point.hollow === hollow));
    const shape = { width: widthOf(into), height: 420 };
    const scale = { time: false, distr: logarithmic ? 3 : 1 };
    const plot = new uPlot(
      {
        ...shape,
        legend: { show: false },
        scales: { x: scale, y: { distr: logarithmic ? 3 : 1 } },
        axes: [axis(x.words), { ...axis(y.words), size: 70 }],
        series: [
          {},
          ...series.map((one) => ({
            stroke: one.stroke,
            spanGaps: true,
            ...(joined.includes(one.kind) ? {} : { paths: () => null }),
            points: { show: true, size: 8, fill: one.hollow ? colour("bg") : one.stroke },
          })),
        ],
        cursor: { points: { show: false }, drag: { x: false, y: false } },
        hooks: {
          setCursor: [
            (u) => {
              let best = null,
                least = 30 ** 2;
              for (const point of sorted) {
                const far =
                  (u.valToPos(point.x, "x") - u.cursor.left) ** 2 +
                  (u.valToPos(point.y, "y") - u.cursor.top) ** 2;
                if (far < least) {
                  least = far;
                  best = point;
                }
              }
              into.dataset.near = best ? best.row.page : "";
              if (into.told)
                into.told.textContent = best
                  ? `${best.name}: ${x.show(best.x)}, ${y.show(best.y)}`
                  : into.words;
            },
          ],
        },
      },
      [
        sorted.map((point) => point.x),
        ...series.map((one) =>
          sorted.map((point) => (point.kind === one.kind && point.hollow === one.hollow ? point.y : null)),
        ),
      ],
      into,
    );
    into.onclick = () => {
      if (into.dataset.near) location.href = into.dataset.near;
    };
    into.append(
      el(
        "ul",
        { className: "legend" },
        ...kinds.map((kind, i) => {
          const mark = el("span", { "aria-hidden": "true" }, "●");
          mark.style.color = colour(i < colours.length ? colours[i] : "muted");
          return el("li", {}, mark, " ", el("bdi", {}, kind));
        }),
      ),
    );
    return plot;
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const onTheme = (plot) => {
    const draw = () => {
      document.body.classList.toggle("drawn-dark", dark.matches);
      plot();
    };
    draw();
    dark.addEventListener("change", draw);
    for (const [name, most] of [
      ["beforeprint", PAPER],
      ["afterprint", Infinity],
    ])
      addEventListener(name, () => {
        widest = most;
        draw();
      });
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth !== width) {
        width = innerWidth;
        draw();
      }
    });
  };

  // ---- explorer ----
  const showExplorer = () => {
    readState();
    const usable = metrics.filter(
      (metric) => metric.values.filter((value) => value !== null).length > 1,
    );
    const options = usable.map((metric) => [metric.name, metric.name]);
    const ofOwn = usable.filter(
      (metric) =>
        rows.filter((row) => row.published === null && (figure(row, metric)?.value ?? null) !== null).length >
        1,
    );
    const first = (...names) =>
      [ofOwn, usable]
        .flatMap((among) =>
          [...names, ...among.map((metric) => metric.name)].filter((name) =>
            among.some((metric) => metric.name === name),
          ),
        )
        .find((name) => name !== at("x").value);
    fill(at("x"), options, state.get("x") ?? first("time.step", "serving.ttft", "serving.e2e_latency"));
    fill(
      at("y"),
      options,
      state.get("y") ??
        first(
          "throughput.tokens_per_device",
          "serving.output_tokens_per_device",
          "serving.output_throughput",
        ),
    );
    fill(
      at("by"),
      [...B.facts.map((fact) => [fact.name, fact.label]), ["published", "publisher"]],
      state.get("by") ?? "accelerator",
    );
    for (const name of ["published", "modelled"]) at(name).checked = state.has(name);
    // Logarithmic where the reader asks for it, or else where figures span more than two decades.
    const isWide = (metric) => {
      const found = metric.values.filter((value) => value !== null);
      const least = found.reduce((a, b) => Math.min(a, b), Infinity);
      return least > 0 && found.reduce((a, b) => Math.max(a, b), 0) > 100 * least;
    };
    const into = at("scatter-plot");
    into.told = at("scatter-words");
    const draw = () => {
      const [x, y] = ["x", "y"].map((name) => usable.find((metric) => metric.name === at(name).value));
      into.replaceChildren();
      at("logarithmic").checked = state.has("logarithmic")
        ? state.get("logarithmic") === "1"
        : Boolean(x && y && isWide(x) && isWide(y));
      if (!x || !y) {
        into.told.textContent = "No metric has two values.";
        return;
      }
      const asked = { published: at("published").checked, modelled: at("modelled").checked },
        logarithmic = at("logarithmic").checked;
      const found = rows
        .filter((row) => asked.published || row.published === null)
        .map((row) => ({
          row,
          name: row.id,
          hollow: row.published !== null,
          of: [figure(row, x), figure(row, y)],
        }))
        .filter(({ of }) => of.every((one) => isShown(one, asked) && (!logarithmic || one.value > 0)))
        .map((point) => ({
          ...point,
          x: point.of[0].value / x.factor,
          y: point.of[1].value / y.factor,
          fact: point.row[at("by").value] ?? "unknown",
        }));
      const counts = new Map();
      for (const point of found) counts.set(point.fact, (counts.get(point.fact) ?? 0) + 1);
      const kinds = [...counts].sort((a, b) => b[1] - a[1]).map(([kind]) => kind);
      const named = kinds.length > colours.length ? [...kinds.slice(0, colours.length), "others"] : kinds;
      for (const point of found) point.kind = named.includes(point.fact) ? point.fact : "others";
      into.words = `${found.length.toLocaleString("en-US")} rows have both ${x.name} and ${y.name}. Filled: computed from evidence; hollow: published. Work is not equal across all of them. Hover for a row, click for its page.`;
      into.told.textContent = into.words;
      into.setAttribute("role", "img");
      into.setAttribute(
        "aria-label",
        `${y.name} against ${x.name} of ${found.length} rows; the board has them as a table`,
      );
      const side = (metric) => ({
        words: `${metric.name}${metric.symbol && ` [${metric.symbol}]`}`,
        show: (value) => withUnit(value * metric.factor, metric),
      });
      if (found.length) scatter(into, found, named, { x: side(x), y: side(y), logarithmic });
    };
    for (const name of ["x", "y", "by"])
      at(name).addEventListener("change", () => {
        setState(name, at(name).value);
        draw();
      });
    for (const name of ["logarithmic", "published", "modelled"])
      at(name).addEventListener("change", () => {
        setState(name, at(name).checked ? "1" : name === "logarithmic" ? "0" : "");
        draw();
      });
    onTheme(draw);

    const box = at("pareto");
    if (!B.latencies.length) {
      box.append(el("p", {}, "No row is a server's benchmark with throughput and latency."));
      return;
    }
    const latency = el("select", {});
    fill(
      latency,
      B.latencies.map((name) => [name, name]),
      state.get("latency") ?? B.latencies[0],
    );
    const plot = el("div", { className: "plot" }),
      lines = el("div"),
      words = el("p", { className: "caption", role: "status" });
    plot.told = words;
    box.append(
      el("div", { className: "controls" }, el("label", {}, "Latency ", latency)),
      words,
      plot,
      lines,
      ...B.point_notes.map((note) => el("p", { className: "caption" }, note)),
    );
    const drawFront = () => {
      const name = latency.value,
        field = name.replace(" ", "_");
      const published = at("published").checked;
      const found = B.points
        .filter(
          (point) =>
            point[field] !== null &&
            point.throughput !== null &&
            (published || rows[point.row].published === null),
        )
        .map((point) => ({
          ...point,
          row: rows[point.row],
          name: `${point.run} ${point.benchmark ?? ""}`,
          x: point[field],
          y: point.throughput,
          hollow: rows[point.row].published !== null,
          kind: (point.best_for ?? "").split(", ").includes(name)
            ? "best: none has more throughput and less latency"
            : "others",
        }));
      plot.replaceChildren();
      const best = found.filter((point) => point.kind !== "others");
      plot.words = `${best.length} of ${found.length} benchmarks are best for ${name}, each among those of its workload.`;
      words.textContent = plot.words;
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", plot.words);
      if (found.length)
        scatter(plot, found, [...new Set(found.map((point) => point.kind))].sort().reverse(), {
          x: { words: `${name} [s]`, show: (value) => `${number(value, plainly)} s` },
          y: {
            words: `output tokens/s ${B.throughput_of}`,
            show: (value) => `${number(value, plainly)} tokens/s`,
          },
        });
      lines.replaceChildren(
        table(
          "Best benchmarks",
          ["run", "benchmark", "workload", `${name} [s]`, `output tokens/s ${B.throughput_of}`],
          [...best]
            .sort((a, b) => a.x - b.x)
            .slice(0, 100)
            .map((point) => [
              runLink(point.row),
              point.benchmark,
              point.workload,
              number(point.x, plainly),
              number(point.y, plainly),
            ]),
        ),
      );
    };
    latency.addEventListener("change", () => {
      setState("latency", latency.value);
      drawFront();
    });
    at("published").addEventListener("change", drawFront);
    onTheme(drawFront);
  };

  // ---- histories ----
  const showHistories = () => {
    for (const into of document.querySelectorAll("[data-series]")) {
      const one = globalThis.HISTORY.series[Number(into.dataset.series)];
      into.setAttribute("role", "img");
      into.setAttribute("aria-label", `${one.name} of ${one.values.length} runs; the runs are listed below`);
      onTheme(() => {
        into.replaceChildren();
        new uPlot(
          {
            width: widthOf(into),
            height: 280,
            legend: { show: false },
            axes: [axis(""), { ...axis(one.unit), size: 80 }],
            cursor: { show: false },
            series: [
              {},
              {
                stroke: colour("compute"),
                width: 1.5,
                points: { show: true, size: 7, fill: colour("compute") },
              },
            ],
            hooks: {
              draw: [
                (u) => {
                  for (const [at_, verdict] of one.changes) {
                    const x = u.valToPos(one.times[at_], "x", true);
                    u.ctx.fillStyle = colour("worse");
                    u.ctx.fillRect(x - 1, u.bbox.top, 2, u.bbox.height);
                    u.ctx.fillText(verdict, x + 5, u.bbox.top + 14);
                  }
                },
              ],
            },
          },
          [one.times, one.values],
          into,
        );
      });
    }
  };

  ({ explore: showExplorer, history: showHistories })[document.body.dataset.page]();
})();
