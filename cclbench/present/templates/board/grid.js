"use strict";
// The board: a grid of rows with filters, ranks and evidence; its state is in the address.
(() => {
  const { B, at, el, rows, metrics, figure, label, number, figureNode, tag, runLink } = Site;
  const { pageOfPair, fill, text, state, readState, setState } = Site;
  readState();
  const asked = () => ({ published: state.has("published"), modelled: state.has("modelled") });
  const facts = [
    ...B.facts.map((fact) => [fact.name, fact.label]),
    ["verified", "verified"],
    ["published", "publisher"],
  ];
  const filterName = (name) => (name === "published" ? "publisher" : name);
  const searched = rows.map((row) =>
    [row.id, row.workload, ...facts.map(([name]) => row[name])].join("\n").toLowerCase(),
  );
  const selected = new Set(state.getAll("select"));
  let predicate = () => true;

  const ranked = () => {
    const letters = (state.has("published") ? "p" : "") + (state.has("modelled") ? "m" : "");
    const found = B.rankings[state.get("rank") ?? Object.keys(B.rankings)[0]]?.[letters];
    const ranks = new Map(found ? found.rows.map((n, i) => [n, found.ranks[i]]) : []);
    const changed = rows.filter((row) => row.rank !== (ranks.get(row.n) ?? null));
    return changed.map((row) => ({ n: row.n, rank: ranks.get(row.n) ?? null }));
  };
  const openTopics = () => new Set(state.getAll("topic"));
  const shownMetrics = () => {
    const open = openTopics();
    return metrics.filter((metric) => metric.key || open.has(metric.topic));
  };
  // Modelled figures are hidden by the style of the page, and left out of sorting.
  const setValues = () => {
    const withModelled = state.has("modelled");
    document.body.classList.toggle("with-modelled", withModelled);
    const hidden = B.cells.map((cell) => !withModelled && text(cell[1]) === "modelled");
    for (const { k, places, values, cells } of shownMetrics())
      for (const row of rows) {
        const place = places[row.n];
        if (place >= 0) row[`m${k}`] = hidden[cells[place]] ? null : values[place];
      }
  };
  const setPredicate = () => {
    const words = (state.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = facts.map(([name]) => [name, state.get(filterName(name))]).filter(([, value]) => value);
    const { published } = asked();
    predicate = (row) =>
      (published || row.published === null) &&
      wanted.every(([name, value]) => row[name] === value) &&
      words.every((word) => searched[row.n].includes(word));
  };

  const headed = (words) => () => el("button", { type: "button" }, words);
  const column = (title, field, more = {}) => ({
    title,
    field,
    headerSort: true,
    titleFormatter: headed(title),
    ...more,
  });
  // Rows without a figure come last in either direction.
  const compareNumbers = (a, b, rowA, rowB, own, direction) => {
    const missing = Number((a ?? null) === null) - Number((b ?? null) === null);
    return (missing && (direction === "asc" ? missing : -missing)) || (a ?? 0) - (b ?? 0);
  };
  const asNumber = { sorter: compareNumbers };
  const headOf = (title) => ({ title, titleFormatter: () => document.createTextNode(title) });
  const plain = (cell) => document.createTextNode(cell.getValue() ?? "");
  const evidenceOf = (metric) => (event, cell) => showEvidence(cell.getRow().getData(), metric);
  const openFact = (words) => (event, cell) => showFact(cell.getRow().getData(), cell.getValue(), words);
  const openWork = (event, cell) => showWork(cell.getRow().getData());
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `600 13px ${getComputedStyle(document.body).fontFamily}`; // of the heads in site.css
  const textWidth = (words) => Math.ceil(pen.measureText(words).width);
  // Tabulator measures a column without a width by laying the page out anew for each.
  const metricWidth = (title, metric) => {
    const largest = metric.values.reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 0);
    return Math.max(textWidth(title) + 40, textWidth(`⚑ ~-${number(largest, metric)}`) + 14);
  };
  const metricTitle = (metric) => `${label(metric)}${metric.symbol && ` [${metric.symbol}]`}`;
  const metricColumn = (metric) =>
    column(metricTitle(metric), `m${metric.k}`, {
      width: metricWidth(metricTitle(metric), metric),
      hozAlign: "right",
      ...asNumber,
      headerSortStartingDir: metric.better === "lower" ? "asc" : "desc",
      headerTooltip: () => el("span", {}, `${metric.name}: ${metric.definition}`),
      cellClick: evidenceOf(metric),
      formatter: (cell) => figureNode(figure(cell.getData(), metric), metric),
    });
  const systems = ["accelerator", "devices", "fabric"];
  const elsewhere = ["model", "phase", "published", ...systems];
  const counted = ["batch", "sequence_length", "devices"];
  const factColumns = (title, names) => ({
    ...headOf(title),
    columns: facts
      .filter(([name]) => names.includes(name))
      .map(([name, words]) =>
        column(words, name, {
          width: name === "accelerator" ? 140 : 92,
          formatter: plain,
          cellClick: openFact(words),
          ...(counted.includes(name) ? asNumber : {}),
        }),
      ),
  });
  const columns = () => {
    const topics = new Map([
      ["Throughput", []],
      ["Serving", []],
    ]);
    const first = new Set(Object.keys(B.rankings));
    for (const metric of shownMetrics().sort((a, b) => first.has(b.name) - first.has(a.name)))
      topics.set(metric.topic, [...(topics.get(metric.topic) ?? []), metric]);
    return [
      {
        title: "",
        field: "n",
        headerSort: false,
        width: 40,
        frozen: innerWidth > 700, // frozen columns are the first ones
        titleFormatter: () => el("span", { className: "hidden-words" }, "selected"),
        formatter: (cell) => {
          const row = cell.getData();
          const box = el("input", {
            type: "checkbox",
            checked: selected.has(row.id),
            "aria-label": `Select ${row.id}`,
          });
          box.addEventListener("change", () => select(row, box.checked));
          return box;
        },
      },
      column("run", "id", {
        width: Math.min(270, innerWidth * 0.55),
        frozen: innerWidth > 700,
        formatter: (cell) => el("span", {}, tag(cell.getData()), " ", runLink(cell.getData())),
      }),
      column("rank", "rank", {
        width: 80,
        ...asNumber,
        formatter: plain,
        cellClick: openWork,
      }),
      column("work", "group", {
        width: 74,
        ...asNumber,
        formatter: (cell) =>
          document.createTextNode(cell.getValue() === null ? "" : `W${cell.getValue() + 1}`),
        cellClick: openWork,
      }),
      column("workload", "workload", {
        width: 175,
        formatter: plain,
        cellClick: openFact("workload"),
      }),
      factColumns("system", systems),
      ...[...topics]
        .filter(([, own]) => own.length)
        .map(([topic, own]) => ({ ...headOf(topic), columns: own.map(metricColumn) })),
      factColumns(
        "setting",
        facts.map(([name]) => name).filter((name) => !elsewhere.includes(name)),
      ),
    ];
  };

  const order = (value) => value ?? Infinity;
  setValues();
  setPredicate();
  for (const { n, rank } of ranked()) rows[n].rank = rank;
  const ordered = [...rows].sort(
    (a, b) =>
      order(a.group) - order(b.group) ||
      order(a.rank) - order(b.rank) ||
      (a.published !== null) - (b.published !== null) ||
      (a.id < b.id ? -1 : 1),
  );
  const grouping = () =>
    ({
      workload: (row) => row.workload,
      work: (row) =>
        row.group === null ? "not proved equal to any" : `W${row.group + 1}: ${B.groups[row.group].basis}`,
      accelerator: (row) => row.accelerator ?? "unknown",
      standard: (row) => row.standard ?? "none is named",
    })[state.get("grouping")] ?? false;
  const sort = (state.get("sort") ?? "").match(/^(.*)\.(asc|desc)$/);
  const sortField = (name) => {
    const metric = metrics.find((one) => one.name === name);
    return metric ? `m${metric.k}` : name;
  };
  const sortName = (field) => (/^m\d+$/.test(field) ? metrics[Number(field.slice(1))].name : field);
  const built = columns();
  const fields = built.flatMap((one) => one.columns ?? one).map((one) => one.field);
  const grid = new Tabulator("#grid", {
    columns: built,
    maxHeight: Math.max(360, innerHeight * 0.72),
    layout: "fitColumns",
    renderHorizontal: "virtual",
    renderVerticalBuffer: 90,
    rowHeight: 30,
    autoResize: false, // else each filter that changes the grid's height lays it out twice
    index: "n",
    columnDefaults: { headerTooltip: false, resizable: "header" },
    placeholder: "No row matches: check “published rows”, or reset the filters.",
    groupBy: grouping(),
    groupHeader: (value, count) => el("span", {}, el("bdi", {}, String(value)), ` (${count.toLocaleString("en-US")})`),
    initialSort:
      sort && fields.includes(sortField(sort[1])) ? [{ column: sortField(sort[1]), dir: sort[2] }] : [],
  });
  // Tabulator's roles of grouped columns and rows are none of ARIA's.
  const mendRoles = () => {
    for (const one of document.querySelectorAll(
      "#grid [role=columngroup], #grid .tabulator-group[role=rowgroup]",
    )) {
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
    at("count").textContent =
      `${shown.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")} rows, ${selected.size} selected`;
    at("compare").disabled = selected.size < 2;
  };
  const refilter = () => {
    setPredicate();
    grid.setFilter(passing);
    count();
  };
  const rerank = () => {
    const changed = ranked();
    if (changed.length) grid.updateData(changed);
  };

  const select = (row, on) => {
    if (on) selected.add(row.id);
    else selected.delete(row.id);
    state.delete("select");
    for (const id of selected) state.append("select", id);
    setState("", "");
    count();
  };
  const dialog = at("evidence");
  const openDialog = (title, ...content) => {
    const close = el("button", { type: "button" }, "Close");
    close.addEventListener("click", () => dialog.close());
    dialog.replaceChildren(el("h2", { id: "evidence-title" }, title), ...content, close);
    dialog.showModal();
  };
  const paragraph = (...content) => el("p", {}, ...content);
  const evidenceLink = (row, section) =>
    el("a", { href: row.published ? row.page : `${row.page}#${section}` }, "The evidence");
  const showEvidence = (row, metric) => {
    const one = figure(row, metric);
    if (one === null) return;
    const lines = [
      ["value", one.value === null ? "none" : `${one.value} ${metric.unit}`],
      ["status", one.status],
      ["provenance", one.provenance],
      ["reason or known defects", one.reason],
      ["window", one.window],
      ["source", one.source],
      ["definition", metric.definition],
      ["version of the definition", one.version],
    ];
    const stated = lines.filter(([, words]) => words !== null);
    openDialog(
      el("span", {}, el("bdi", {}, metric.name), ` of `, el("bdi", {}, row.id)),
      el("dl", {}, ...stated.flatMap(([name, words]) => [el("dt", {}, name), el("dd", {}, words)])),
      paragraph(
        evidenceLink(row, "metrics"),
        metric.page ? " · " : null,
        metric.page ? el("a", { href: metric.page }, "About the metric") : null,
      ),
    );
  };
  const showFact = (row, value, words) =>
    openDialog(
      el("span", {}, `${words} of `, el("bdi", {}, row.id)),
      paragraph(el("bdi", {}, String(value ?? "not stated"))),
      paragraph(row.published ? `As ${row.published} published it.` : "By the run's card or its traces."),
      paragraph(evidenceLink(row, "sources")),
    );
  const showWork = (row) => {
    if (row.group === null) {
      openDialog("No rank", paragraph("Its work is not proved equal to another run's."));
      return;
    }
    const { rows: count, basis } = B.groups[row.group];
    const by = at("rank").selectedOptions[0].textContent;
    const members = rows.filter((other) => other.group === row.group).slice(0, 50);
    openDialog(
      `W${row.group + 1}`,
      paragraph(row.rank === null ? `No rank by ${by}.` : `Rank ${row.rank} by ${by}.`),
      paragraph(`Each pair of these ${count} runs is proved to do equal work: ${basis}.`),
      el("ul", {}, ...members.map((other) => el("li", {}, runLink(other)))),
    );
  };

  // Controls: each writes the state, then filters, ranks or redraws.
  const search = at("search");
  search.value = state.get("q") ?? "";
  search.addEventListener("input", () => {
    setState("q", search.value);
    refilter();
  });
  for (const name of ["published", "modelled"]) {
    at(name).checked = state.has(name);
    at(name).addEventListener("change", () => {
      setState(name, at(name).checked ? "1" : "");
      setValues();
      rerank();
      refilter();
    });
  }
  const rankings = Object.keys(B.rankings);
  fill(
    at("rank"),
    rankings.length ? rankings.map((name) => [name, B.ranking_names[name]]) : [["", "no equal work has figures"]],
    state.get("rank") ?? rankings[0] ?? "",
  );
  at("rank").addEventListener("change", () => {
    setState("rank", at("rank").value);
    rerank();
  });
  at("grouping").value = state.get("grouping") ?? "";
  at("grouping").addEventListener("change", () => {
    setState("grouping", at("grouping").value);
    grid.setGroupBy(grouping());
  });
  for (const [name, title] of facts) {
    const counts = new Map();
    for (const row of rows) if (row[name] !== null) counts.set(row[name], (counts.get(row[name]) ?? 0) + 1);
    if (!counts.size) continue;
    const choice = el("select", {});
    const options = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 500);
    fill(
      choice,
      [["", "any"], ...options.map(([value, times]) => [value, `${value} (${times})`])],
      state.get(filterName(name)),
    );
    choice.addEventListener("change", () => {
      setState(filterName(name), choice.value);
      refilter();
    });
    at("facts").append(el("label", {}, `${title} `, choice));
    at("filters").open ||= state.has(filterName(name));
  }
  for (const topic of new Set(metrics.map((metric) => metric.topic))) {
    const box = el("input", { type: "checkbox", checked: openTopics().has(topic) });
    box.addEventListener("change", () => {
      const open = state.getAll("topic").filter((name) => name !== topic);
      state.delete("topic");
      for (const name of box.checked ? [...open, topic] : open) state.append("topic", name);
      setState("", "");
      setValues();
      grid.setColumns(columns());
    });
    at("topic-list").append(el("label", {}, box, ` all of: ${topic}`));
  }
  at("reset").addEventListener("click", () => {
    history.replaceState(null, "", "#");
    location.reload();
  });
  at("compare").addEventListener("click", () => {
    const chosen = rows.filter((row) => selected.has(row.id));
    const made = chosen.length === 2 && pageOfPair.get(`${chosen[0].n} ${chosen[1].n}`);
    location.href = made || `compare.html#${new URLSearchParams(chosen.map((row) => ["run", row.id]))}`;
  });
  Site.shown = {
    asked,
    facts: facts.map(([name]) => [name, filterName(name)]),
    rows: () => grid.getData("active"),
    metrics: shownMetrics,
  };
  grid.on("tableBuilt", async () => {
    // Tabulator draws two more widths of the grid on either side; a column or two are enough.
    grid.columnManager.renderer.calcWindowBuffer = function () {
      this.windowBuffer = 300;
    };
    refilter(); // before there are rows: all of them would be drawn otherwise
    await grid.setData(ordered);
    const focus = rows.find((row) => row.id === state.get("focus"));
    if (focus) grid.scrollToRow(focus.n, "center", false).catch(() => {});
    at("grid").dataset.ready = "1";
  });
  grid.on("dataSorted", (sorters) => {
    if (sorters.length && at("grid").dataset.ready)
      setState("sort", `${sortName(sorters[0].field)}.${sorters[0].dir}`);
  });
  addEventListener("hashchange", () => location.reload());
  // Arrow keys go from cell to cell of a row, Enter opens a cell's evidence.
  const afterRendering = (then) => requestAnimationFrame(() => setTimeout(then));
  const focusCell = (cell) => {
    const target = cell.querySelector("a, input") ?? cell;
    cell.tabIndex = -1;
    target.focus();
    // Scrolling renders other columns, which may take the focus away.
    afterRendering(() => document.activeElement === document.body && target.focus({ preventScroll: true }));
  };
  at("grid").addEventListener("keydown", (event) => {
    const cell = event.target.closest(".tabulator-cell");
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!cell || (!step && event.key !== "Enter")) return;
    if (event.key === "Enter") {
      if (event.target !== cell) return;
      event.preventDefault(); // else Firefox also activates the link that gets the focus in the dialog
      cell.click();
      return;
    }
    const row = grid.getRows("visible").find((one) => one.getElement() === cell.parentElement);
    const columns = grid.getColumns();
    const place = columns.findIndex((one) => one.getField() === cell.getAttribute("tabulator-field"));
    const next = columns[place + step];
    if (!row || !next) return;
    event.preventDefault();
    const element = row.getCell(next).getElement();
    if (element.isConnected) {
      focusCell(element);
      return;
    }
    const holder = at("grid").querySelector(".tabulator-tableholder");
    const left = next.getElement().getBoundingClientRect().left - holder.getBoundingClientRect().left;
    holder.scrollLeft += left - holder.clientWidth / 2;
    afterRendering(() => focusCell(element));
  });
})();
