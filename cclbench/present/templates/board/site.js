"use strict";
// The script of a site's pages.  Texts of runs become text nodes, never markup.
(() => {
  const at = (id) => document.getElementById(id);
  const el = (tag, properties = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in made && name !== "list") made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  };

  // ---- the board's data: rows, and each row's figure of each metric ----
  const B = globalThis.BOARD;
  const text = (number) => (number === null ? null : B.texts[number]);
  const rows = !B ? [] : B.rows.id.map((id, n) => ({
    n, id: text(id), page: B.rows.page[n] ?? `point.html#run=${encodeURIComponent(text(id))}`, published: text(B.rows.published[n]), verified: text(B.rows.verified[n]),
    date: B.rows.date[n], group: B.rows.group[n], rank: null,
    ...Object.fromEntries(B.facts.map((fact) => [fact.name, text(fact.of[n])])),
  }));
  const spread = (ranges) => ranges.flatMap(([first, count]) => Array.from({ length: count }, (_, i) => first + i));
  const metrics = !B ? [] : B.metrics.map((metric, k) => ({ ...metric, k, places: new Map(spread(B.figures[k].rows).map((n, i) => [n, i])) }));
  for (const row of rows) row.workload = [row.model, row.phase].filter(Boolean).join(" ") || "unknown";
  const figure = (row, metric) => {
    const place = metric.places.get(row.n);
    if (place === undefined) return null;
    const [status, provenance, reason, window, version, source] = B.cells[B.figures[metric.k].cells[place]].map(text);
    return { value: B.figures[metric.k].values[place], status, provenance, reason, window, version, source };
  };
  // Whether a figure is shown: modelled ones where the reader asks for them.
  const isShown = (one, asked) => one !== null && one.value !== null && (asked.modelled || one.provenance !== "modelled");
  const label = (metric) => metric.name.replace(/^[^.]*\./, "").replace(/\[(.*)\]$/, (_, part) => ` ${part.replace(/\w+=/g, "")}`);
  const number = (value, metric) => {
    const scaled = value / metric.factor, size = Math.abs(scaled);
    if (scaled === 0) return "0";
    if (size >= 999.5) return scaled.toLocaleString("en-US", { maximumFractionDigits: 0 });
    return size < 0.001 ? scaled.toExponential(2) : scaled.toPrecision(3);
  };
  const plainly = { factor: 1 };
  const withUnit = (value, metric) => `${number(value, metric)}${metric.symbol && ` ${metric.symbol}`}`;
  const figureNode = (one, metric, unit = false) => {
    if (one === null) return el("span");
    if (one.value === null) return el("span", { className: "none", title: one.reason ?? "" }, one.status === "failed" ? "failed" : "n/a");
    const words = (one.provenance === "modelled" ? "~" : "") + (unit ? withUnit : number)(one.value, metric);
    const node = el("span", { className: `n ${one.provenance ?? ""}` }, words);
    const isFlagged = one.status === "partial" || (one.provenance === "published" && one.reason);
    return isFlagged ? el("span", {}, el("span", { className: "flag", title: one.reason ?? "partial" }, "⚑"), node) : node;
  };
  const tag = (row) => row.published ? el("span", { className: "tag published" }, row.published) : null;
  const runLink = (row) => el("a", { href: row.page }, el("bdi", { className: "name", title: row.id }, row.id));
  const table = (name, heads, lines) => el("div", { className: "box", tabIndex: 0, role: "region", "aria-label": name }, el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...lines.map((line) => el("tr", {}, ...line.map((cell) => el("td", {}, cell ?? "")))))));
  const pageOfPair = new Map(!B ? [] : B.comparisons.flatMap(([a, b, page]) => [[`${a} ${b}`, page], [`${b} ${a}`, page]]));
  const equalGroup = (chosen) => chosen.length > 1 && chosen[0].group !== null && chosen.every((row) => row.group === chosen[0].group) ? B.groups[chosen[0].group] : null;
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
    if (value) state.set(name, value); else state.delete(name);
    history.replaceState(null, "", `#${state}`);
  };

  const pages = {};

  // ---- board ----
  pages.board = () => {
    readState();
    const asked = () => ({ published: state.has("published"), modelled: state.has("modelled") });
    const facts = [...B.facts.map((fact) => [fact.name, fact.label]), ["verified", "verified"], ["published", "publisher"]];
    const filterName = (name) => (name === "published" ? "publisher" : name);
    const searched = rows.map((row) => [row.id, row.workload, ...facts.map(([name]) => row[name])].join("\n").toLowerCase());
    const selected = new Set(state.getAll("select"));
    let predicate = () => true;

    const ranked = () => {
      const letters = (state.has("published") ? "p" : "") + (state.has("modelled") ? "m" : "");
      const found = B.rankings[state.get("rank") ?? Object.keys(B.rankings)[0]]?.[letters];
      const ranks = new Map(found ? found.rows.map((n, i) => [n, found.ranks[i]]) : []);
      const changed = rows.filter((row) => row.rank !== (ranks.get(row.n) ?? null));
      return changed.map((row) => ({ n: row.n, rank: ranks.get(row.n) ?? null }));
    };
    // Modelled figures are hidden by the style of the page, and left out of sorting.
    const modelled = [];
    for (const metric of metrics) {
      const field = `m${metric.k}`;
      for (const [n, place] of metric.places) {
        const value = B.figures[metric.k].values[place];
        rows[n][field] = value;
        if (value !== null && text(B.cells[B.figures[metric.k].cells[place]][1]) === "modelled") modelled.push([rows[n], field, value]);
      }
    }
    const setModelled = () => {
      const shown = state.has("modelled");
      document.body.classList.toggle("with-modelled", shown);
      for (const [row, field, value] of modelled) row[field] = shown ? value : null;
    };
    const setPredicate = () => {
      const words = (state.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
      const wanted = facts.map(([name]) => [name, state.get(filterName(name))]).filter(([, value]) => value);
      const { published } = asked();
      predicate = (row) => (published || row.published === null)
        && wanted.every(([name, value]) => row[name] === value)
        && words.every((word) => searched[row.n].includes(word));
    };

    const headed = (words) => () => el("button", { type: "button" }, words);
    const column = (title, field, more = {}) => ({ title, field, headerSort: true, titleFormatter: headed(title), ...more });
    const plain = (cell) => document.createTextNode(cell.getValue() ?? "");
    const evidenceOf = (metric) => (event, cell) => showEvidence(cell.getRow().getData(), metric);
    const metricColumn = (metric) => column(`${label(metric)}${metric.symbol && ` [${metric.symbol}]`}`, `m${metric.k}`, {
      hozAlign: "right", sorter: "number", sorterParams: { alignEmptyValues: "bottom" }, headerSortStartingDir: metric.better === "lower" ? "asc" : "desc",
      headerTooltip: () => `${metric.name}: ${metric.definition}`, cellClick: evidenceOf(metric),
      formatter: (cell) => figureNode(figure(cell.getData(), metric), metric),
    });
    const counted = ["batch", "sequence_length", "devices"];
    const factColumns = (title, names) => ({ title, titleFormatter: () => document.createTextNode(title), columns: facts.filter(([name]) => names.includes(name)).map(([name, words]) =>
      column(words, name, { width: name === "accelerator" ? 140 : 92, formatter: plain, sorter: counted.includes(name) ? "number" : "string", sorterParams: { alignEmptyValues: "bottom" } })) });
    const columns = () => {
      const open = new Set(state.getAll("topic"));
      const topics = new Map([["Throughput", []], ["Serving", []]]);
      const first = new Set(Object.keys(B.rankings));
      for (const metric of [...metrics].sort((a, b) => first.has(b.name) - first.has(a.name))) if (metric.key || open.has(metric.topic)) topics.set(metric.topic, [...(topics.get(metric.topic) ?? []), metric]);
      return [
        { title: "", field: "n", headerSort: false, width: 40, titleFormatter: () => el("span", { className: "hidden-words" }, "selected"), formatter: (cell) => {
          const row = cell.getData();
          const box = el("input", { type: "checkbox", checked: selected.has(row.id), "aria-label": `Select ${row.id}` });
          box.addEventListener("change", () => select(row, box.checked));
          return box;
        } },
        column("run", "id", { width: Math.min(270, innerWidth * 0.55), frozen: innerWidth > 700, formatter: (cell) => el("span", {}, tag(cell.getData()), " ", runLink(cell.getData())) }),
        column("rank", "rank", { width: 80, sorter: "number", sorterParams: { alignEmptyValues: "bottom" }, formatter: (cell) => document.createTextNode(cell.getValue() ?? "") }),
        column("work", "group", { width: 74, sorter: "number", sorterParams: { alignEmptyValues: "bottom" },
          formatter: (cell) => document.createTextNode(cell.getValue() === null ? "" : `W${cell.getValue() + 1}`), cellClick: (event, cell) => showWork(cell.getData()) }),
        column("workload", "workload", { width: 175, formatter: plain }),
        factColumns("system", ["accelerator", "devices", "fabric"]),
        ...[...topics].filter(([, own]) => own.length).map(([topic, own]) => ({ title: topic, titleFormatter: () => document.createTextNode(topic), columns: own.map(metricColumn) })),
        factColumns("setting", facts.map(([name]) => name).filter((name) => !["model", "phase", "published", "accelerator", "devices", "fabric"].includes(name))),
      ];
    };

    const order = (value) => value ?? Infinity;
    setModelled();
    setPredicate();
    for (const { n, rank } of ranked()) rows[n].rank = rank;
    const ordered = [...rows].sort((a, b) => order(a.group) - order(b.group) || order(a.rank) - order(b.rank) || (a.published !== null) - (b.published !== null) || (a.id < b.id ? -1 : 1));
    const grouping = () => ({ workload: (row) => row.workload, work: (row) => (row.group === null ? "not proved equal to any" : `W${row.group + 1}: ${B.groups[row.group].basis}`), accelerator: (row) => row.accelerator ?? "unknown" })[state.get("grouping")] ?? false;
    const sort = (state.get("sort") ?? "").match(/^(.*)\.(asc|desc)$/);
    const sortField = (name) => metrics.find((metric) => metric.name === name) ? `m${metrics.find((metric) => metric.name === name).k}` : name;
    const sortName = (field) => (/^m\d+$/.test(field) ? metrics[Number(field.slice(1))].name : field);
    const built = columns();
    const fields = built.flatMap((one) => one.columns ?? one).map((one) => one.field);
    const grid = new Tabulator("#grid", {
      data: ordered, columns: built, maxHeight: Math.max(360, innerHeight * 0.72), layout: "fitDataFill", renderVerticalBuffer: 300, index: "n",
      columnDefaults: { headerTooltip: false, resizable: "header" }, placeholder: "No row fits: ask for published rows, or reset the filters.",
      initialFilter: [], groupBy: grouping(), groupHeader: (value, count) => el("span", {}, el("bdi", {}, String(value)), ` (${count})`),
      initialSort: sort && fields.includes(sortField(sort[1])) ? [{ column: sortField(sort[1]), dir: sort[2] }] : [],
    });
    // Tabulator's roles of grouped columns and rows are none of ARIA's.
    const mendRoles = () => {
      for (const one of document.querySelectorAll("#grid [role=columngroup], #grid .tabulator-group[role=rowgroup]")) {
        one.setAttribute("role", "presentation");
        for (const name of ["aria-sort", "aria-title"]) one.removeAttribute(name);
      }
      for (const one of document.querySelectorAll("#grid [aria-title]")) one.removeAttribute("aria-title");
      document.querySelector("#grid .tabulator-tableholder")?.setAttribute("role", "rowgroup");
      document.querySelector("#grid .tabulator-table")?.setAttribute("role", "presentation");
      at("grid").removeAttribute("aria-owns");
    };
    new MutationObserver(mendRoles).observe(at("grid"), { childList: true, subtree: true });
    const passing = (data) => predicate(data);
    const count = () => {
      const shown = rows.filter(passing).length;
      at("count").textContent = `${shown.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")} rows, ${selected.size} selected`;
      at("compare").disabled = selected.size < 2;
    };
    const refilter = () => { setPredicate(); grid.setFilter(passing); count(); };
    const rerank = () => {
      const changed = ranked();
      if (changed.length) grid.updateData(changed);
    };

    const select = (row, on) => {
      if (on) selected.add(row.id); else selected.delete(row.id);
      state.delete("select");
      for (const id of selected) state.append("select", id);
      setState("", "");
      count();
    };
    const dialog = at("evidence");
    const openDialog = (title, ...content) => {
      dialog.replaceChildren(el("h2", { id: "evidence-title" }, title), ...content, el("form", { method: "dialog" }));
      const close = el("button", { type: "button" }, "Close");
      close.addEventListener("click", () => dialog.close());
      dialog.lastChild.replaceWith(close);
      dialog.showModal();
    };
    const showEvidence = (row, metric) => {
      const one = figure(row, metric);
      if (one === null) return;
      const lines = [["value", one.value === null ? "none" : `${one.value} ${metric.unit}`], ["status", one.status], ["provenance", one.provenance],
        ["reason or known defects", one.reason], ["window", one.window], ["source", one.source], ["definition", metric.definition], ["version of the definition", one.version]];
      openDialog(el("span", {}, el("bdi", {}, metric.name), ` of `, el("bdi", {}, row.id)), el("dl", {}, ...lines.filter(([, words]) => words !== null)
        .flatMap(([name, words]) => [el("dt", {}, name), el("dd", {}, words)])), el("p", {}, el("a", { href: row.published ? row.page : `${row.page}#metrics` }, "The evidence"), " · ",
        metric.page ? el("a", { href: metric.page }, "About the metric") : null));
    };
    const showWork = (row) => {
      if (row.group === null) return;
      openDialog(`W${row.group + 1}`, el("p", {}, `Each pair of these ${B.groups[row.group].rows} runs is proved to do equal work: ${B.groups[row.group].basis}.`),
        el("ul", {}, ...rows.filter((other) => other.group === row.group).slice(0, 50).map((other) => el("li", {}, runLink(other)))));
    };

    // Controls: each writes the state, then filters, ranks or redraws.
    const search = at("search");
    search.value = state.get("q") ?? "";
    search.addEventListener("input", () => { setState("q", search.value); refilter(); });
    for (const name of ["published", "modelled"]) {
      at(name).checked = state.has(name);
      at(name).addEventListener("change", () => {
        setState(name, at(name).checked ? "1" : "");
        setModelled();
        rerank();
        refilter();
      });
    }
    const rankings = Object.keys(B.rankings);
    fill(at("rank"), rankings.length ? rankings.map((name) => [name, name]) : [["", "no equal work has figures"]], state.get("rank") ?? rankings[0] ?? "");
    at("rank").addEventListener("change", () => { setState("rank", at("rank").value); rerank(); });
    at("grouping").value = state.get("grouping") ?? "";
    at("grouping").addEventListener("change", () => { setState("grouping", at("grouping").value); grid.setGroupBy(grouping()); });
    for (const [name, title] of facts) {
      const counts = new Map();
      for (const row of rows) if (row[name] !== null) counts.set(row[name], (counts.get(row[name]) ?? 0) + 1);
      if (!counts.size) continue;
      const choice = el("select", {});
      const options = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 500);
      fill(choice, [["", "any"], ...options.map(([value, times]) => [value, `${value} (${times})`])], state.get(filterName(name)));
      choice.addEventListener("change", () => { setState(filterName(name), choice.value); refilter(); });
      at("facts").append(el("label", {}, `${title} `, choice));
      at("filters").open ||= state.has(filterName(name));
    }
    for (const topic of new Set(metrics.map((metric) => metric.topic))) {
      const box = el("input", { type: "checkbox", checked: state.getAll("topic").includes(topic) });
      box.addEventListener("change", () => {
        const open = state.getAll("topic").filter((name) => name !== topic);
        state.delete("topic");
        for (const name of box.checked ? [...open, topic] : open) state.append("topic", name);
        setState("", "");
        grid.setColumns(columns());
      });
      at("topic-list").append(el("label", {}, box, ` all of: ${topic}`));
    }
    at("reset").addEventListener("click", () => { history.replaceState(null, "", "#"); location.reload(); });
    at("compare").addEventListener("click", () => {
      const chosen = rows.filter((row) => selected.has(row.id));
      const made = chosen.length === 2 && pageOfPair.get(`${chosen[0].n} ${chosen[1].n}`);
      location.href = made || `compare.html#${new URLSearchParams(chosen.map((row) => ["run", row.id]))}`;
    });
    const download = (name, type, content) => {
      const link = el("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
      link.click();
      URL.revokeObjectURL(link.href);
    };
    const shownRows = () => grid.getData("active");
    const shownMetrics = () => metrics.filter((metric) => metric.key || state.getAll("topic").includes(metric.topic));
    at("csv").addEventListener("click", () => {
      const inert = (value) => (typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : value ?? "");
      const quoted = (value) => `"${String(inert(value)).replaceAll('"', '""')}"`;
      const heads = ["run", ...facts.map(([name]) => filterName(name)), "work", "rank", ...shownMetrics().flatMap((metric) => [`${metric.name} (${metric.unit})`, `${metric.name} provenance`])];
      const lines = shownRows().map((row) => [row.id, ...facts.map(([name]) => row[name]), row.group === null ? "" : `W${row.group + 1}`, row.rank, ...shownMetrics().flatMap((metric) => {
        const one = figure(row, metric);
        return isShown(one, asked()) ? [one.value, one.provenance] : ["", ""];
      })]);
      download("board.csv", "text/csv", [heads, ...lines].map((line) => line.map(quoted).join(",")).join("\r\n"));
    });
    at("json").addEventListener("click", () => {
      const found = shownRows().map((row) => ({
        run: row.id, ...Object.fromEntries(facts.map(([name]) => [filterName(name), row[name]])), rank: row.rank,
        equal_work: row.group === null ? null : B.groups[row.group].basis,
        figures: Object.fromEntries(metrics.map((metric) => [metric, figure(row, metric)]).filter(([, one]) => one && (one.value === null || isShown(one, asked()))).map(([metric, one]) => [metric.name, { ...one, unit: metric.unit }])),
      }));
      download("board.json", "application/json", JSON.stringify({ schema: "board.v1", rows: found }, null, 1));
    });
    // Paper has no scrolling: a plain table of the first rows.
    addEventListener("beforeprint", () => {
      const own = shownMetrics().filter((metric) => !metric.name.includes("[") && shownRows().some((row) => (row[`m${metric.k}`] ?? null) !== null)).slice(0, 4);
      const lines = shownRows().slice(0, 100).map((row) => [row.id, row.rank, row.workload, `${row.devices ?? ""} ${row.accelerator ?? ""}`, ...own.map((metric) => isShown(figure(row, metric), asked()) ? figureNode(figure(row, metric), metric, true) : "")]);
      at("printed")?.remove();
      at("grid").after(el("div", { id: "printed" }, table("Rows", ["run", "rank", "workload", "system", ...own.map((metric) => metric.name)], lines)));
    });
    grid.on("tableBuilt", () => {
      refilter();
      const focus = rows.find((row) => row.id === state.get("focus"));
      if (focus) grid.scrollToRow(focus.n, "center", false).catch(() => {});
      at("grid").dataset.ready = "1";
    });
    grid.on("dataSorted", (sorters) => { if (sorters.length && at("grid").dataset.ready) setState("sort", `${sortName(sorters[0].field)}.${sorters[0].dir}`); });
    addEventListener("hashchange", () => location.reload());
    // Arrow keys go from cell to cell of a row, Enter opens a cell's evidence.
    at("grid").addEventListener("keydown", (event) => {
      const cell = event.target.closest(".tabulator-cell");
      const step = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
      if (!cell || (!step && event.key !== "Enter")) return;
      if (event.key === "Enter") { if (event.target === cell) cell.click(); return; }
      const next = cell[step]?.matches(".tabulator-cell") ? cell[step] : null;
      if (next) { event.preventDefault(); next.tabIndex = -1; (next.querySelector("a, input") ?? next).focus(); }
    });
  };

  // ---- a published row ----
  pages.point = () => {
    readState();
    const row = rows.find((one) => one.published && one.id === state.get("run"));
    addEventListener("hashchange", () => location.reload());
    if (!row) { at("point").append(el("p", {}, "No published row has this address.")); return; }
    document.title = row.id;
    document.querySelector("h1").replaceChildren(el("bdi", {}, row.id), " ", tag(row));
    const own = metrics.map((metric) => [metric, figure(row, metric)]).filter(([, one]) => one !== null);
    const valued = own.filter(([, one]) => one.value !== null), missing = own.filter(([, one]) => one.value === null);
    const { columns, texts } = globalThis.PUBLISHED;
    const place = spread(globalThis.PUBLISHED.rows).indexOf(row.n);
    const told = Object.entries(columns).map(([name, numbers]) => [name, numbers[place]]).filter(([, code]) => code !== null);
    at("point").append(
      el("p", { className: "lead" }, `As ${row.published} published it. Nothing was recomputed: no trace was read.`),
      el("p", {}, el("a", { href: `board.html#${new URLSearchParams({ published: "1", focus: row.id })}` }, "On the board")),
      el("h2", {}, "Figures, and their known defects"),
      table("Figures", ["metric", "published", "defects and remarks"], valued.map(([metric, one]) => [metric.page ? el("a", { href: metric.page }, metric.name) : metric.name, figureNode(one, metric, true), one.reason])),
      el("details", {}, el("summary", {}, `${missing.length} figures without a number`), el("dl", { className: "why" }, ...missing.flatMap(([metric, one]) => [el("dt", {}, metric.name), el("dd", {}, one.reason ?? "")]))),
      el("h2", {}, "What is published with them"),
      el("dl", { className: "wrap" }, ...told.flatMap(([name, code]) => [el("dt", {}, name), el("dd", {}, el("bdi", {}, texts[code]))])));
  };

  // ---- rows side by side ----
  pages.compare = () => {
    readState();
    addEventListener("hashchange", () => location.reload());
    const chosen = state.getAll("run").map((id) => rows.find((row) => row.id === id)).filter(Boolean).slice(0, 12);
    const into = at("side-by-side");
    if (chosen.length < 2) { into.append(el("p", {}, "Select two or more rows on the "), el("a", { href: "board.html" }, "board"), "."); return; }
    const equal = equalGroup(chosen);
    into.append(el("p", { className: "lead" }, equal ? `Their work is proved equal: ${equal.basis}.` : "They are not proved to do equal work: their figures stand side by side, and none of them is ranked."));
    for (const [i, a] of chosen.entries()) for (const b of chosen.slice(i + 1)) {
      const page = pageOfPair.get(`${a.n} ${b.n}`);
      if (page) into.append(el("p", {}, el("a", { href: page }, `What makes the difference: ${a.id} and ${b.id}`)));
    }
    const differing = [...B.facts, { name: "date", label: "date" }, { name: "verified", label: "verified" }].filter(({ name }) => new Set(chosen.map((row) => row[name])).size > 1);
    into.append(el("h2", {}, "In what they differ"), table("Facts", ["fact", ...chosen.map((row) => runLink(row))], differing.map(({ name, label: words }) => [words, ...chosen.map((row) => row[name] ?? "unknown")])),
      el("h2", {}, "Figures"), table("Figures", ["metric", ...chosen.map((row) => el("span", {}, row.id, " ", tag(row)))], metrics.filter((metric) => chosen.some((row) => (figure(row, metric)?.value ?? null) !== null))
        .map((metric) => [metric.name, ...chosen.map((row) => figureNode(figure(row, metric), metric, true))])));
  };

  // ---- plots ----
  const colours = ["compute", "transfer", "overlapped", "copy", "graphs", "unmatched", "wait-hatch"];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const axis = (words) => ({ label: words, labelSize: 24, stroke: colour("ink"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } });
  // Points [{x, y, kind, hollow, row}]; `joined` names the kinds whose points a line joins.
  const scatter = (into, points, kinds, { x, y, logarithmic = false, joined = [] }) => {
    const sorted = [...points].sort((a, b) => a.x - b.x);
    const series = kinds.flatMap((kind, i) => [false, true].map((hollow) => ({ kind, hollow, stroke: colour(i < colours.length ? colours[i] : "muted") })))
      .filter(({ kind, hollow }) => sorted.some((point) => point.kind === kind && point.hollow === hollow));
    const shape = { width: into.clientWidth || 600, height: 420 };
    const scale = { time: false, distr: logarithmic ? 3 : 1 };
    const plot = new uPlot({
      ...shape, legend: { show: false }, scales: { x: scale, y: { distr: logarithmic ? 3 : 1 } }, axes: [axis(x.words), { ...axis(y.words), size: 70 }],
      series: [{}, ...series.map((one) => ({ stroke: one.stroke, spanGaps: true, ...(joined.includes(one.kind) ? {} : { paths: () => null }), points: { show: true, size: 8, fill: one.hollow ? colour("bg") : one.stroke } }))],
      cursor: { points: { show: false }, drag: { x: false, y: false } },
      hooks: { setCursor: [(u) => {
        let best = null, least = 30 ** 2;
        for (const point of sorted) {
          const far = (u.valToPos(point.x, "x") - u.cursor.left) ** 2 + (u.valToPos(point.y, "y") - u.cursor.top) ** 2;
          if (far < least) { least = far; best = point; }
        }
        into.dataset.near = best ? best.row.page : "";
        if (into.told) into.told.textContent = best ? `${best.name}: ${x.show(best.x)}, ${y.show(best.y)}` : into.words;
      }] },
    }, [sorted.map((point) => point.x), ...series.map((one) => sorted.map((point) => point.kind === one.kind && point.hollow === one.hollow ? point.y : null))], into);
    into.onclick = () => { if (into.dataset.near) location.href = into.dataset.near; };
    into.append(el("ul", { className: "legend" }, ...kinds.map((kind, i) => {
      const mark = el("span", { "aria-hidden": "true" }, "●");
      mark.style.color = colour(i < colours.length ? colours[i] : "muted");
      return el("li", {}, mark, " ", el("bdi", {}, kind));
    })));
    return plot;
  };
  const onTheme = (draw) => {
    draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    let width = innerWidth;
    addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
  };

  // ---- explorer ----
  pages.explore = () => {
    readState();
    const usable = metrics.filter((metric) => B.figures[metric.k].values.filter((value) => value !== null).length > 1);
    const options = usable.map((metric) => [metric.name, metric.name]);
    const ofOwn = usable.filter((metric) => rows.filter((row) => row.published === null && (figure(row, metric)?.value ?? null) !== null).length > 1);
    const first = (...names) => [ofOwn, usable].flatMap((among) => [...names, ...among.map((metric) => metric.name)].filter((name) => among.some((metric) => metric.name === name)))
      .find((name) => name !== at("x").value);
    fill(at("x"), options, state.get("x") ?? first("time.step", "serving.ttft", "serving.e2e_latency"));
    fill(at("y"), options, state.get("y") ?? first("throughput.tokens_per_device", "serving.output_tokens_per_device", "serving.output_throughput"));
    fill(at("by"), [...B.facts.map((fact) => [fact.name, fact.label]), ["published", "publisher"]], state.get("by") ?? "accelerator");
    for (const name of ["logarithmic", "published", "modelled"]) at(name).checked = state.has(name);
    const into = at("scatter-plot");
    into.told = at("scatter-words");
    const draw = () => {
      const [x, y] = ["x", "y"].map((name) => usable.find((metric) => metric.name === at(name).value));
      into.replaceChildren();
      if (!x || !y) { into.told.textContent = "No metric has two values."; return; }
      const asked = { published: at("published").checked, modelled: at("modelled").checked }, logarithmic = at("logarithmic").checked;
      const found = rows.filter((row) => asked.published || row.published === null).map((row) => ({ row, name: row.id, hollow: row.published !== null, of: [figure(row, x), figure(row, y)] }))
        .filter(({ of }) => of.every((one) => isShown(one, asked) && (!logarithmic || one.value > 0)))
        .map((point) => ({ ...point, x: point.of[0].value / x.factor, y: point.of[1].value / y.factor, fact: point.row[at("by").value] ?? "unknown" }));
      const counts = new Map();
      for (const point of found) counts.set(point.fact, (counts.get(point.fact) ?? 0) + 1);
      const kinds = [...counts].sort((a, b) => b[1] - a[1]).map(([kind]) => kind);
      const named = kinds.length > colours.length ? [...kinds.slice(0, colours.length), "others"] : kinds;
      for (const point of found) point.kind = named.includes(point.fact) ? point.fact : "others";
      into.words = `${found.length} rows have both ${x.name} and ${y.name}. Filled: own; hollow: published. Work is not equal across all of them. Hover for a row, click for its page.`;
      into.told.textContent = into.words;
      into.setAttribute("role", "img");
      into.setAttribute("aria-label", `${y.name} against ${x.name} of ${found.length} rows; the board has them as a table`);
      const side = (metric) => ({ words: `${metric.name}${metric.symbol && ` [${metric.symbol}]`}`, show: (value) => withUnit(value * metric.factor, metric) });
      if (found.length) scatter(into, found, named, { x: side(x), y: side(y), logarithmic });
    };
    for (const name of ["x", "y", "by"]) at(name).addEventListener("change", () => { setState(name, at(name).value); draw(); });
    for (const name of ["logarithmic", "published", "modelled"]) at(name).addEventListener("change", () => { setState(name, at(name).checked ? "1" : ""); draw(); });
    onTheme(draw);

    const box = at("pareto");
    if (!B.latencies.length) { box.append(el("p", {}, "No row is a server's benchmark with throughput and latency.")); return; }
    const latency = el("select", {});
    fill(latency, B.latencies.map((name) => [name, name]), state.get("latency") ?? B.latencies[0]);
    const plot = el("div", { className: "plot" }), lines = el("div"), words = el("p", { className: "caption", role: "status" });
    plot.told = words;
    box.append(el("div", { className: "controls" }, el("label", {}, "Latency ", latency)), words, plot, lines, ...B.point_notes.map((note) => el("p", { className: "caption" }, note)));
    const drawFront = () => {
      const name = latency.value, field = name.replace(" ", "_");
      const published = at("published").checked;
      const found = B.points.filter((point) => point[field] !== null && point.throughput !== null && (published || rows[point.row].published === null))
        .map((point) => ({ ...point, row: rows[point.row], name: `${point.run} ${point.benchmark ?? ""}`, x: point[field], y: point.throughput, hollow: rows[point.row].published !== null, kind: (point.best_for ?? "").split(", ").includes(name) ? "best: none has more throughput and less latency" : "others" }));
      plot.replaceChildren();
      const best = found.filter((point) => point.kind !== "others");
      plot.words = `${best.length} of ${found.length} benchmarks are best for ${name}, each among those of its workload.`;
      words.textContent = plot.words;
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", plot.words);
      if (found.length) scatter(plot, found, [...new Set(found.map((point) => point.kind))].sort().reverse(), { x: { words: `${name} [s]`, show: (value) => `${number(value, plainly)} s` }, y: { words: `output tokens/s ${B.throughput_of}`, show: (value) => `${number(value, plainly)} tokens/s` } });
      lines.replaceChildren(table("Best benchmarks", ["run", "benchmark", "workload", `${name} [s]`, `output tokens/s ${B.throughput_of}`], [...best].sort((a, b) => a.x - b.x).slice(0, 100).map((point) => [runLink(point.row), point.benchmark, point.workload, number(point.x, plainly), number(point.y, plainly)])));
    };
    latency.addEventListener("change", () => { setState("latency", latency.value); drawFront(); });
    at("published").addEventListener("change", drawFront);
    onTheme(drawFront);
  };

  // ---- histories ----
  pages.history = () => {
    for (const into of document.querySelectorAll("[data-series]")) {
      const one = globalThis.HISTORY.series[Number(into.dataset.series)];
      into.setAttribute("role", "img");
      into.setAttribute("aria-label", `${one.name} of ${one.values.length} runs; the runs are listed below`);
      onTheme(() => {
        into.replaceChildren();
        new uPlot({
          width: into.clientWidth || 600, height: 280, legend: { show: false }, axes: [axis(""), { ...axis(one.unit), size: 80 }], cursor: { show: false },
          series: [{}, { stroke: colour("compute"), width: 1.5, points: { show: true, size: 7, fill: colour("compute") } }],
          hooks: { draw: [(u) => {
            for (const [at_, verdict] of one.changes) {
              const x = u.valToPos(one.times[at_], "x", true);
              u.ctx.fillStyle = colour("worse");
              u.ctx.fillRect(x - 1, u.bbox.top, 2, u.bbox.height);
              u.ctx.fillText(verdict, x + 5, u.bbox.top + 14);
            }
          }] },
        }, [one.times, one.values], into);
      });
    }
  };

  pages[document.body.dataset.page]?.();
})();
