"use strict";
(() => {
  // Hover texts: the title of an element, or the <title> of a mark of a chart; shown at once, and on a tap.
  const tip = document.getElementById("tip");
  let held = null;
  const read = (el) => {
    if (el.hasAttribute("title")) return [() => el.getAttribute("title"), (text) => el.setAttribute("title", text)];
    const title = el.querySelector(":scope > title");
    return title && [() => title.textContent, (text) => { title.textContent = text; }];
  };
  const hide = () => {
    if (held) held.write(held.text);
    held = null;
    tip.hidden = true;
  };
  const tell = (target, atX, atY) => {
    let el = target instanceof Element ? target : null;
    if (held && el && held.el.contains(el)) return;
    hide();
    for (; el && el !== document.body; el = el.parentElement) {
      const found = read(el);
      if (!found) continue;
      held = { el, write: found[1], text: found[0](), at: [atX, atY] };
      if (!held.text) { held = null; return; }
      held.write(""); // else the browser shows it a second time
      tip.textContent = held.text;
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      const x = Math.min(atX + 12, innerWidth - box.width - 8);
      const below = atY + 18;
      const y = below + box.height > innerHeight - 8 ? atY - box.height - 12 : below;
      tip.style.left = `${Math.max(8, x)}px`;
      tip.style.top = `${Math.max(8, y)}px`;
      return;
    }
  };
  const show = (event) => tell(event.target, event.clientX, event.clientY);
  const touch = (event) => event.pointerType === "touch";
  document.addEventListener("pointerover", (event) => { if (!touch(event)) show(event); });
  document.addEventListener("pointerout", (event) => {
    const to = event.relatedTarget;
    if (!touch(event) && held && !(to instanceof Node && held.el.contains(to))) hide();
  });
  document.addEventListener("click", (event) => { if (touch(event)) show(event); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // Arrow keys go from mark to mark of a chart that has the focus.
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  for (const chart of document.querySelectorAll("svg.chart")) {
    const marks = [...chart.querySelectorAll("title")].map((title) => title.parentElement);
    let at = -1;
    const leave = () => { marks[at]?.classList.remove("at"); hide(); };
    chart.addEventListener("keydown", (event) => {
      if (!(event.key in steps) || !marks.length) return;
      event.preventDefault();
      leave();
      at = at < 0 && steps[event.key] < 0 ? marks.length - 1 : (at + steps[event.key] + marks.length) % marks.length;
      marks[at].classList.add("at");
      marks[at].scrollIntoView({ block: "nearest", inline: "nearest" });
      const box = marks[at].getBoundingClientRect();
      tell(marks[at], box.x + box.width / 2, box.y + box.height / 2);
    });
    chart.addEventListener("blur", leave);
  }
  addEventListener("scroll", () => {
    if (held && !held.el.contains(document.elementFromPoint(...held.at))) hide();
  }, true);

  // Sorting: a click on a heading; numbers by data-v, largest first, texts by what they say; what is missing is last.
  const order = (a, b) => typeof a === "number" ? a - b : a.localeCompare(b);
  const sort = (table, head) => {
    const column = head.cellIndex;
    const numeric = head.classList.contains("num");
    const now = head.getAttribute("aria-sort");
    const down = now ? now === "ascending" : numeric;
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.cells[column];
      if (!numeric) return cell.textContent.trim();
      return "v" in cell.dataset ? Number(cell.dataset.v) : null;
    };
    const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
    rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : (down ? order(b, a) : order(a, b)));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    table.tHead.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) sort(table, button.parentElement);
    });
  }

  // Filtering: rows whose text holds all words.
  for (const input of document.querySelectorAll("input[data-table]")) {
    const body = document.getElementById(input.dataset.table).tBodies[0];
    const count = document.getElementById(`${input.dataset.table}-count`);
    const texts = new Map([...body.rows].map((row) => [row, row.textContent.toLowerCase()]));
    input.closest(".filter").hidden = false;
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/);
      let shown = 0;
      for (const [row, text] of texts) {
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      count.textContent = `${shown} of ${texts.size}`;
    });
  }

  // Paper has no triangles to click.
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details:not([open])")) { one.open = true; one.dataset.closed = ""; }
  });
  addEventListener("afterprint", () => {
    for (const one of document.querySelectorAll("details[data-closed]")) { one.open = false; delete one.dataset.closed; }
  });
})();
