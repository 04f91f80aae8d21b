"use strict";
// What the pages of a site share, and those without a grid or a plot.  Texts of runs become text nodes, never markup.
const Site = (() => {
  const at = (id) => document.getElementById(id);
  const el = (tag, properties = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in made) made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  };

  // ---- the board's data: rows, and each row's figure of each metric ----
  const B = globalThis.BOARD;
  const text = (number) => (number === null ? null : B.texts[number]);
  // A column whose runs of equal values are stored once, with their lengths.
  const unpack = ({ of, times }) =>
    times ? of.flatMap((value, i) => new Array(times[i]).fill(value)) : of;
  const column = Object.fromEntries(Object.entries(B?.rows ?? {}).map(([name, own]) => [name, unpack(own)]));
  const facts = (B?.facts ?? []).map((fact) => [fact.name, unpack(fact)]);
  const rows = (column.id ?? []).map((id, n) => ({
    n,
    id: text(id),
    page: column.page[n] ?? `point.html#run=${encodeURIComponent(text(id))}`,
    published: text(column.published[n]),
    verified: text(column.verified[n]),
    date: column.date[n],
    group: column.group[n],
    rank: null,
    ...Object.fromEntries(facts.map(([name, of]) => [name, text(of[n])])),
  }));
  // Of each row the place of its figure, -1 where it has none; `ranges` are [first row, number of rows].
  const placesOf = (ranges) => {
    const places = new Int32Array(rows.length).fill(-1);
    let place = 0;
    for (const [first, count] of ranges) for (let n = first; n < first + count; n++) places[n] = place++;
    return places;
  };
  const metrics = (B?.metrics ?? []).map((metric, k) => ({
    ...metric,
    k,
    places: placesOf(B.figures[k].rows),
    values: unpack(B.figures[k].values),
    cells: unpack(B.figures[k].cells),
  }));
  for (const row of rows) row.workload = [row.model, row.phase].filter(Boolean).join(" ") || "unknown";
  const figure = (row, metric) => {
    const place = metric.places[row.n];
    if (place < 0) return null;
    const [status, provenance, reason, window, version, source] =
      B.cells[metric.cells[place]].map(text);
    return { value: metric.values[place], status, provenance, reason, window, version, source };
  };
  // Whether a figure is shown: modelled ones where the reader asks for them.
  const isShown = (one, asked) =>
    one !== null && one.value !== null && (asked.modelled || one.provenance !== "modelled");
  const label = (metric) =>
    metric.name.replace(/^[^.]*\./, "").replace(/\[(.*)\]$/, (_, part) => ` ${part.replace(/\w+=/g, "")}`);
  const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const number = (value, metric) => {
    const scaled = value / metric.factor,
      size = Math.abs(scaled);
    if (scaled === 0) return "0";
    if (size >= 999.5) return whole.format(scaled);
    return size < 0.001 ? scaled.toExponential(2) : scaled.toPrecision(3);
  };
  const plainly = { factor: 1 };
  const withUnit = (value, metric) => `${number(value, metric)}${metric.symbol && ` ${metric.symbol}`}`;
  const figureNode = (one, metric, unit = false) => {
    if (one === null) return el("span");
    if (one.value === null)
      return el(
        "span",
        { className: "none", title: one.reason ?? "" },
        one.status === "failed" ? "failed" : "n/a",
      );
    const words = (one.provenance === "modelled" ? "~" : "") + (unit ? withUnit : number)(one.value, metric);
    const node = el("span", { className: `n ${one.provenance ?? ""}` }, words);
    const isFlagged = one.status === "partial" || (one.provenance === "published" && one.reason);
    return isFlagged
      ? el("span", {}, el("span", { className: "flag", title: one.reason ?? "partial" }, "⚑"), node)
      : node;
  };
  const tag = (row) => (row.published ? el("span", { className: "tag published" }, row.published) : null);
  const runLink = (row) =>
    el("a", { href: row.page }, el("bdi", { className: "name", title: row.id }, row.id));
  const table = (name, heads, lines) =>
    el(
      "div",
      { className: "box", tabIndex: 0, role: "region", "aria-label": name },
      el(
        "table",
        {},
        el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
        el(
          "tbody",
          {},
          ...lines.map((line) => el("tr", {}, ...line.map((cell) => el("td", {}, cell ?? "")))),
        ),
      ),
    );
  const pageOfPair = new Map(
    !B
      ? []
      : B.comparisons.flatMap(([a, b, page]) => [
          [`${a} ${b}`, page],
          [`${b} ${a}`, page],
        ]),
  );
  const equalGroup = (chosen) =>
    chosen.length > 1 && chosen[0].group !== null && chosen.every((row) => row.group === chosen[0].group)
      ? B.groups[chosen[0].group]
      : null;
  const fill = (select, options, value) => {
    select.replaceChildren(...options.map(([name, words]) => el("option", { value: name }, words)));
    select.value = value ?? "";
  };

  // ---- the state of a page, in the hash of its address ----
  const state = new URLSearchParams();
  const readState = () => {
    for (const name of [...state.keys()]) state.delete(name);
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) state.append(name, value);
  };
  const setState = (name, value) => {
    if (value) state.set(name, value);
    else state.delete(name);
    history.replaceState(null, "", `#${state}`);
  };

  // ---- a published row ----
  const showPoint = () => {
    readState();
    const row = rows.find((one) => one.published && one.id === state.get("run"));
    addEventListener("hashchange", () => location.reload());
    if (!row) {
      at("point").append(el("p", {}, "No published row has this address."));
      return;
    }
    document.title = row.id;
    document.querySelector("h1").replaceChildren(el("bdi", {}, row.id), " ", tag(row));
    const own = metrics.map((metric) => [metric, figure(row, metric)]).filter(([, one]) => one !== null);
    const valued = own.filter(([, one]) => one.value !== null),
      missing = own.filter(([, one]) => one.value === null);
    const { columns, texts } = globalThis.PUBLISHED;
    const place = placesOf(globalThis.PUBLISHED.rows)[row.n];
    const told = Object.entries(columns)
      .map(([name, numbers]) => [name, unpack(numbers)[place]])
      .filter(([, code]) => code !== null);
    at("point").append(
      el(
        "p",
        { className: "lead" },
        `As ${row.published} published it. Nothing was recomputed: no trace was read.`,
      ),
      el(
        "p",
        {},
        el(
          "a",
          { href: `board.html#${new URLSearchParams({ published: "1", focus: row.id })}` },
          "On the board",
        ),
      ),
      el("h2", {}, "Figures, and their known defects"),
      table(
        "Figures",
        ["metric", "published", "defects and remarks"],
        valued.map(([metric, one]) => [
          metric.page ? el("a", { href: metric.page }, metric.name) : metric.name,
          figureNode(one, metric, true),
          one.reason,
        ]),
      ),
      el(
        "details",
        {},
        el("summary", {}, `${missing.length} figures without a number`),
        el(
          "dl",
          { className: "why" },
          ...missing.flatMap(([metric, one]) => [el("dt", {}, metric.name), el("dd", {}, one.reason ?? "")]),
        ),
      ),
      el("h2", {}, "What is published with them"),
      el(
        "dl",
        { className: "wrap" },
        ...told.flatMap(([name, code]) => [el("dt", {}, name), el("dd", {}, el("bdi", {}, texts[code]))]),
      ),
    );
  };

  // ---- rows side by side ----
  const showSideBySide = () => {
    readState();
    addEventListener("hashchange", () => location.reload());
    const chosen = state
      .getAll("run")
      .map((id) => rows.find((row) => row.id === id))
      .filter(Boolean)
      .slice(0, 12);
    const into = at("side-by-side");
    if (chosen.length < 2) {
      into.append(
        el("p", {}, "Select two or more rows on the "),
        el("a", { href: "board.html" }, "board"),
        ".",
      );
      return;
    }
    const equal = equalGroup(chosen);
    into.append(
      el(
        "p",
        { className: "lead" },
        equal
          ? `Their work is proved equal: ${equal.basis}.`
          : "They are not proved to do equal work: their figures stand side by side, and none of them is ranked.",
      ),
    );
    for (const [i, a] of chosen.entries())
      for (const b of chosen.slice(i + 1)) {
        const page = pageOfPair.get(`${a.n} ${b.n}`);
        if (page)
          into.append(el("p", {}, el("a", { href: page }, `Why they differ: ${a.id} against ${b.id}`)));
      }
    const differing = [
      ...B.facts,
      { name: "date", label: "date" },
      { name: "verified", label: "verified" },
    ].filter(({ name }) => new Set(chosen.map((row) => row[name])).size > 1);
    into.append(
      el("h2", {}, "Where they differ"),
      table(
        "Facts",
        ["fact", ...chosen.map((row) => runLink(row))],
        differing.map(({ name, label: words }) => [words, ...chosen.map((row) => row[name] ?? "unknown")]),
      ),
      el("h2", {}, "Figures"),
      table(
        "Figures",
        ["metric", ...chosen.map((row) => el("span", {}, row.id, " ", tag(row)))],
        metrics
          .filter((metric) => chosen.some((row) => (figure(row, metric)?.value ?? null) !== null))
          .map((metric) => [
            metric.name,
            ...chosen.map((row) => figureNode(figure(row, metric), metric, true)),
          ]),
      ),
    );
  };

  ({ point: showPoint, compare: showSideBySide })[document.body.dataset.page]?.();
  return {
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
    figureNode,
    tag,
    runLink,
    table,
    pageOfPair,
    fill,
    text,
    state,
    readState,
    setState,
  };
})();
