"use strict";
// The rows that the board shows, as CSV, as JSON and on paper.
(() => {
  const { B, at, el, metrics, figure, isShown, figureNode, table, shown } = Site;

  const download = (name, type, content) => {
    const link = el("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
    link.click();
    URL.revokeObjectURL(link.href);
  };
  at("csv").addEventListener("click", () => {
    const inert = (value) =>
      typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : (value ?? "");
    const quoted = (value) => `"${String(inert(value)).replaceAll('"', '""')}"`;
    const heads = [
      "run",
      ...shown.facts.map(([, head]) => head),
      "work",
      "rank",
      ...shown
        .metrics()
        .flatMap((metric) => [`${metric.name} (${metric.unit})`, `${metric.name} provenance`]),
    ];
    const lines = shown.rows().map((row) => [
      row.id,
      ...shown.facts.map(([name]) => row[name]),
      row.group === null ? "" : `W${row.group + 1}`,
      row.rank,
      ...shown.metrics().flatMap((metric) => {
        const one = figure(row, metric);
        return isShown(one, shown.asked()) ? [one.value, one.provenance] : ["", ""];
      }),
    ]);
    download(
      "board.csv",
      "text/csv",
      [heads, ...lines].map((line) => line.map(quoted).join(",")).join("\r\n"),
    );
  });
  at("json").addEventListener("click", () => {
    const found = shown.rows().map((row) => ({
      run: row.id,
      ...Object.fromEntries(shown.facts.map(([name, head]) => [head, row[name]])),
      rank: row.rank,
      equal_work: row.group === null ? null : B.groups[row.group].basis,
      figures: Object.fromEntries(
        metrics
          .map((metric) => [metric, figure(row, metric)])
          .filter(([, one]) => one && (one.value === null || isShown(one, shown.asked())))
          .map(([metric, one]) => [metric.name, { ...one, unit: metric.unit }]),
      ),
    }));
    download("board.json", "application/json", JSON.stringify({ schema: "board.v1", rows: found }, null, 1));
  });
  // Paper has no scrolling: a plain table of the first rows.
  addEventListener("beforeprint", () => {
    const own = shown
      .metrics()
      .filter(
        (metric) =>
          !metric.name.includes("[") && shown.rows().some((row) => (row[`m${metric.k}`] ?? null) !== null),
      )
      .slice(0, 4);
    const lines = shown
      .rows()
      .slice(0, 100)
      .map((row) => [
        row.id,
        row.rank,
        row.workload,
        [row.devices, row.accelerator].filter(Boolean).join(" × "),
        ...own.map((metric) =>
          isShown(figure(row, metric), shown.asked()) ? figureNode(figure(row, metric), metric, true) : "",
        ),
      ]);
    at("printed")?.remove();
    at("grid").after(
      el(
        "div",
        { id: "printed" },
        table("Rows", ["run", "rank", "workload", "system", ...own.map((metric) => metric.name)], lines),
      ),
    );
  });
})();
