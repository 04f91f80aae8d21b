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
      put(held.text, atX, atY);
      return;
    }
  };
  const put = (text, atX, atY) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = Math.min(atX + 12, innerWidth - box.width - 8);
    const below = atY + 18;
    const y = below + box.height > innerHeight - 8 ? atY - box.height - 12 : below;
    tip.style.left = `${Math.max(8, x)}px`;
    tip.style.top = `${Math.max(8, y)}px`;
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

  // The timeline of a step: spans on a canvas; drag, buttons, keys or Ctrl and the wheel zoom.
  const time = (ns) => {
    const [size, unit] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : ns >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    return `${+(ns / size).toPrecision(4)} ${unit}`;
  };
  for (const box of document.querySelectorAll(".timeline")) {
    const { ns, names, lanes } = JSON.parse(box.querySelector("pre").textContent);
    const canvas = box.querySelector("canvas");
    const pen = canvas.getContext("2d");
    const [TOP, ROW, BAR] = [20, 34, 18];
    for (const lane of lanes) {
      let at = 0;
      lane.at = [];
      for (let i = 0; i < lane.spans.length; i += 4) {
        at += lane.spans[i];
        lane.at.push(at);
        at += lane.spans[i + 1];
      }
    }
    let [from, to, begun, drag] = [0, ns, null, null];
    const after = (lane, t) => {  // the first span that begins after t
      let [low, high] = [0, lane.at.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (lane.at[middle] > t) high = middle; else low = middle + 1;
      }
      return low;
    };
    const draw = () => {
      const [w, h, fine] = [canvas.clientWidth, TOP + ROW * lanes.length, devicePixelRatio || 1];
      const css = getComputedStyle(document.documentElement);
      const hue = (name) => css.getPropertyValue(`--${name}`);
      canvas.height = h * fine;
      canvas.width = w * fine;
      pen.scale(fine, fine);
      pen.font = "11px system-ui, sans-serif";
      const scale = w / (to - from);
      const least = 90 / scale;
      const ten = 10 ** Math.floor(Math.log10(least));
      const step = [1, 2, 5, 10].find((k) => k * ten >= least) * ten;
      for (let t = Math.ceil(from / step) * step; t < to; t += step) {
        pen.fillStyle = hue("line");
        pen.fillRect((t - from) * scale, 0, 1, h);
        pen.fillStyle = hue("muted");
        const told = t ? time(t) : "0";
        if ((t - from) * scale + pen.measureText(told).width + 4 < w) pen.fillText(told, (t - from) * scale + 3, 11);
      }
      lanes.forEach(({ label, spans, at }, row) => {
        const y = TOP + ROW * row;
        pen.fillStyle = hue("muted");
        pen.fillText(label, 2, y + 10);
        let pixel = -1;
        for (let i = Math.max(after(lanes[row], from) - 1, 0); i < at.length && at[i] < to; i++) {
          const x = Math.max((at[i] - from) * scale, 0);
          const end = Math.min((at[i] + spans[4 * i + 1] - from) * scale, w);
          if (end <= 0 || end < pixel) continue;
          const [name, colour] = names[spans[4 * i + 2]];
          pen.fillStyle = hue(colour);
          pen.fillRect(x, y + 14, Math.max(end - x - (end - x > 4), 1), BAR);
          pixel = Math.max(Math.floor(x) + 1, end);
          if (end - x < 40) continue;
          pen.save();
          pen.beginPath();
          pen.rect(x, y + 14, end - x - 3, BAR);
          pen.clip();
          pen.fillStyle = hue(colour === "copy" ? "on-copy" : "on-dark");
          pen.fillText(name, x + 3, y + 27);
          pen.restore();
        }
      });
      if (drag !== null) {
        pen.fillStyle = hue("accent");
        pen.globalAlpha = 0.25;
        pen.fillRect(Math.min(begun, drag), 0, Math.abs(drag - begun), h);
      }
    };
    const view = (a, b) => {
      const size = Math.min(Math.max(b - a, 100), ns);
      from = Math.min(Math.max(a, 0), ns - size);
      to = from + size;
      draw();
    };
    const zoom = (factor, middle = (from + to) / 2) => view(middle - (middle - from) * factor, middle + (to - middle) * factor);
    const acts = { "+": () => zoom(0.5), "-": () => zoom(2), 0: () => view(0, ns) };
    acts["="] = acts["+"];
    for (const [key, part] of [["ArrowLeft", -0.25], ["ArrowRight", 0.25]])
      acts[key] = () => view(from + part * (to - from), to + part * (to - from));
    const moment = (x) => from + x * (to - from) / canvas.clientWidth;
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || !(event.key in acts)) return;
      event.preventDefault();
      acts[event.key]();
    });
    for (const button of box.querySelectorAll("button")) button.addEventListener("click", () => acts[button.value]());
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 0.7 : 1.4, moment(event.offsetX));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => { if (!touch(event)) begun = event.offsetX; });
    canvas.addEventListener("pointermove", (event) => {
      if (begun !== null) {
        drag = event.offsetX;
        draw();
        return;
      }
      const lane = lanes[Math.floor((event.offsetY - TOP) / ROW)];
      const t = moment(event.offsetX);
      const i = lane ? after(lane, t + 2 * (to - from) / canvas.clientWidth) - 1 : -1;
      const [, long, name, count] = i < 0 ? [] : lane.spans.slice(4 * i, 4 * i + 4);
      hide();
      if (i < 0 || lane.at[i] + long < t - 2 * (to - from) / canvas.clientWidth) return;
      const what = count > 1 ? `${count.toLocaleString("en")} merged, the longest ${names[name][0]}` : names[name][0];
      put(`${what}\n${time(long)} from ${time(lane.at[i])}\n${lane.label}`, event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerleave", hide);
    addEventListener("pointerup", () => {
      const [a, b] = [begun, drag];
      begun = drag = null;
      if (a !== null && b !== null && Math.abs(b - a) > 4) view(moment(Math.min(a, b)), moment(Math.max(a, b)));
    });
    canvas.addEventListener("dblclick", acts[0]);
    addEventListener("resize", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    box.hidden = false;
    draw();
  }

  // A box that is wider than its place takes the focus, so that keys scroll it.
  const scrolled = new ResizeObserver((entries) => {
    for (const { target } of entries) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
  });
  for (const box of document.querySelectorAll(".box:not([tabindex])")) scrolled.observe(box);

  // Paper has no triangles to click.
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details:not([open])")) { one.open = true; one.dataset.closed = ""; }
  });
  addEventListener("afterprint", () => {
    for (const one of document.querySelectorAll("details[data-closed]")) { one.open = false; delete one.dataset.closed; }
  });
})();
