// What pages do beyond links and forms: live updates, forms on top of the page, copy buttons, and keyboard shortcuts.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const root = document.body.dataset.root;
  const store = {
    get: (k) => { try { return localStorage.getItem(k); } catch { return null; } },
    set: (k, v) => { try { localStorage.setItem(k, v); } catch { /* private windows */ } },
  };

  // ---- Live: on "pawl:refresh" a page requests its changing part. A stream triggers it when something has changed, and a timer at
  // intervals in any case. While there is no stream, since proxies and networks cut them, the timer is faster; or slower, if the server
  // says that it has too many streams.
  const part = $("live");
  const address = part.dataset.watch;
  const beat = Number(part.dataset.beat);
  const fallback = 5000, least = 1000, patience = 8000, longest = 60000;
  let paused = store.get("pawl-paused") === "yes";
  let source = null, heard = false, tries = 0, retry = 0, full = 0; // the stream
  let asked = Date.now(), busy = false, due = false, answered = true; // the page's own requests
  const looking = () => beat && !paused && document.visibilityState === "visible";
  const ticked = () => part.querySelectorAll("td.tick input:checked"); // while there are any, rows keep their places
  const streams = () => !address || heard;

  function refresh() {
    if (!looking()) return;
    if (busy || ticked().length || document.querySelector("dialog[open]")) { due = true; return; }
    due = false;
    asked = Date.now();
    document.body.dispatchEvent(new CustomEvent("pawl:refresh"));
  }
  function open() {
    clearTimeout(retry);
    if (!address || source || !looking()) return;
    const own = source = new EventSource(address);
    const lose = () => { if (own === source) lost(); };
    own.addEventListener("hello", () => { heard = true; tries = full = 0; showLive(); refresh(); }); // something may have happened in between
    own.addEventListener("changed", refresh);
    own.addEventListener("gone", () => { lose(); refresh(); }); // which finds out the reason
    own.addEventListener("full", (e) => { full = Number(e.data) * 1000; lose(); });
    own.addEventListener("error", lose);
    setTimeout(() => { if (!heard) lose(); }, patience); // a proxy may buffer small messages
  }
  function close() {
    source?.close();
    source = null;
    heard = false;
    clearTimeout(retry);
  }
  function lost() { // the browser's own reconnect has no backoff
    close();
    tries++;
    retry = setTimeout(open, (full ? longest : Math.min(least * 2 ** tries, longest)) * (0.5 + Math.random()));
    showLive();
  }
  function watch() {
    open();
    setInterval(() => { if (looking() && Date.now() - asked >= (streams() ? beat : full || Math.min(beat, fallback))) refresh(); }, least);
  }

  const liveSwitch = $("live-switch");
  function showLive() {
    const late = !paused && answered && !streams() && (full || tries > 1);
    liveSwitch.setAttribute("aria-pressed", String(!paused));
    liveSwitch.classList.toggle("broken", !paused && !answered);
    liveSwitch.classList.toggle("late", !!late);
    const n = ticked().length;
    const [says, why] = paused ? ["Paused", "Updates are paused"]
      : n ? [`Held: ${n} selected`, "The list holds still while rows are selected"]
      : !answered ? ["Reconnecting…", "The server does not answer"]
      : late && full ? [`Every ${full / 1000} s`, "Too many pages are open on this server: the page polls instead"]
      : late ? [`Every ${fallback / 1000} s`, "The event stream is interrupted: the page polls until it is back"]
      : ["Live", "Pause live updates"];
    liveSwitch.querySelector("span").textContent = says;
    liveSwitch.title = document.body.dataset.keys === "off" ? why : `${why} (l)`;
  }
  function togglePause() {
    if (!beat) return;
    paused = !paused;
    store.set("pawl-paused", paused ? "yes" : "");
    if (paused) close(); else open();
    tries = 0;
    showLive();
    refresh();
  }
  liveSwitch.addEventListener("click", togglePause);
  document.addEventListener("visibilitychange", () => { if (looking()) { open(); refresh(); } else close(); });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (e) => { if (e.persisted) { open(); refresh(); } });
  // A refresh sends the ETag of what the page shows, and gets 304 if that is still current.
  let tag = "";
  part.addEventListener("htmx:configRequest", (e) => { if (e.target === part && tag) e.detail.headers["If-None-Match"] = tag; });
  part.addEventListener("htmx:afterSwap", (e) => { if (e.target === part) tag = e.detail.xhr.getResponseHeader("ETag") ?? ""; });
  part.addEventListener("htmx:beforeRequest", (e) => { if (e.target === part) busy = true; });
  part.addEventListener("htmx:afterRequest", (e) => {
    if (e.target !== part) return;
    const status = e.detail.xhr?.status ?? 0;
    busy = false;
    answered = status > 0 && status < 500;
    if (status === 200 || status === 304) stood(); // on paper
    showLive();
    if (due) setTimeout(refresh, Math.max(0, asked + least - Date.now()));
  });

  // What people have opened or selected, or are about to read, stays as it is when the rest changes.
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => name !== "data-chosen" && !(name === "open" && node.nodeName === "DETAILS");
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (old) => !(old.nodeType === 1 && old.matches("[data-still]"));
  document.addEventListener("htmx:beforeSwap", (e) => {
    const selection = document.getSelection();
    if (e.detail.target.id !== "live" || e.detail.requestConfig.verb !== "get") return;
    if (e.detail.xhr.status >= 400 && e.detail.xhr.status !== 404) e.detail.shouldSwap = false;
    if (selection && !selection.isCollapsed && part.contains(selection.anchorNode)) e.detail.shouldSwap = false;
    if (ticked().length) { e.detail.shouldSwap = false; due = true; } // ticked during the request
  });

  // ---- Times: "3 min ago" advances by itself, by the server's clock. The browser's may be wrong, or be corrected while the page is
  // open; responses carry the time to the second.
  const came = performance.getEntriesByType("navigation")[0]?.responseStart || performance.now();
  let ahead = Number(document.body.dataset.now) - (Date.now() - performance.now() + came);
  const now = () => Date.now() + ahead;
  document.addEventListener("htmx:afterRequest", (e) => {
    const date = Date.parse(e.detail.xhr?.getResponseHeader("Date")) + 500;
    if (Math.abs(date - now()) > 1500) ahead += date - now();
  });
  function coarse(s) { // as coarse in format.go
    for (const [unit, below, name] of [[1, 60, "s"], [60, 60, "min"], [3600, 48, "h"], [86400, Infinity, "days"]]) {
      const n = Math.round(s / unit);
      if (n < below) return `${n} ${name}`;
    }
  }
  // Pages are rendered in UTC, and shown in the browser's zone, with UTC next to it. A date is added if it is not today.
  const reads = (how) => {
    const f = new Intl.DateTimeFormat("en-GB", { hourCycle: "h23", ...how });
    return (ms) => f.format(ms).replaceAll(",", "");
  };
  const clock = { hour: "2-digit", minute: "2-digit" }, seconds = { ...clock, second: "2-digit" }, day = { day: "numeric", month: "short" };
  const zone = { timeZoneName: "short" }, year = { year: "numeric" };
  const clockOf = reads(clock), dayOf = reads(day), yearOf = reads({ ...day, ...year }), stepOf = reads({ ...seconds, ...zone });
  const zoneOf = (ms) => new Intl.DateTimeFormat("en-GB", zone).formatToParts(ms).find((p) => p.type === "timeZoneName").value;
  const longOf = reads({ weekday: "short", ...day, ...year, ...seconds, fractionalSecondDigits: 3, ...zone }), fullOf = reads({ ...day, ...year, ...seconds, ...zone });
  const inUTC = (ms) => new Date(ms).getTimezoneOffset() === 0;
  const sameDay = (ms, at) => new Date(ms).toDateString() === new Date(at).toDateString();
  function dateOf(ms, at) { // as dateText in format.go
    return new Date(ms).getFullYear() === new Date(at).getFullYear() ? `${dayOf(ms)} ${clockOf(ms)}` : yearOf(ms);
  }
  function textOf(t, ms, at) { // as momentOf and dayFrom in format.go
    if (t.hasAttribute("data-clock")) return sameDay(ms, at) ? clockOf(ms) : dateOf(ms, at);
    const d = (at - ms) / 1000;
    if (Math.abs(d) >= 3600 && !sameDay(ms, at)) return dateOf(ms, at);
    return Math.abs(d) < 0.5 ? "now" : d > 0 ? `${coarse(d)} ago` : `in ${coarse(-d)}`;
  }
  function bothOf(ms) {
    const utc = `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
    return inUTC(ms) ? utc : `${fullOf(ms)} · ${utc}`;
  }
  const stood = () => { if ($("stood")) $("stood").textContent = bothOf(now()); };
  const beside = " · "; // between local time and UTC; marks text written here
  function tick() {
    const at = now();
    for (const t of document.querySelectorAll("time[datetime]")) {
      const ms = Date.parse(t.dateTime), text = textOf(t, ms, at);
      if (t.textContent !== text) t.textContent = text;
      if (t.title && !inUTC(ms) && !t.title.includes(beside)) t.title = longOf(ms) + beside + t.title;
    }
    for (const t of document.querySelectorAll("svg text[data-clock]")) t.textContent = clockOf(Date.parse(t.dataset.clock));
    for (const t of document.querySelectorAll(".values [data-at]")) {
      const ms = Date.parse(t.dataset.at);
      t.textContent = (sameDay(ms, at) ? "" : `${dayOf(ms)} `) + stepOf(ms);
    }
    for (const t of document.querySelectorAll("svg text.zone")) t.textContent = zoneOf(at);
    for (const t of document.querySelectorAll("svg title[data-at]")) {
      const ms = Date.parse(t.dataset.at);
      if (inUTC(ms) || t.textContent.includes(beside)) continue;
      t.textContent = (sameDay(ms, at) ? "" : `${dayOf(ms)} `) + stepOf(ms) + beside + t.textContent;
    }
  }
  function localize() {
    for (const t of document.querySelectorAll("[data-both]")) t.textContent = bothOf(Number(t.dataset.both));
    tick();
  }
  stood();
  localize();
  document.addEventListener("htmx:afterSettle", localize);
  setInterval(tick, 1000);

  // ---- Forms on top of the page. Links with data-form open in the dialog; without scripts their forms are separate pages.
  // One in which something was typed closes only by its Cancel button: Escape, and a selection that is drawn out of it, would lose the text.
  const dialog = $("dialog");
  let edited = false, pressed = null; // pressed: where the pointer went down
  dialog.addEventListener("input", () => { edited = true; });
  document.addEventListener("pointerdown", (e) => { pressed = e.target; });
  function kept(e) {
    const place = dialog.querySelector(".buttons");
    if (!edited || !place) return false;
    e.preventDefault();
    const says = place.querySelector("[role=status]") ?? document.createElement("span");
    says.className = "hint";
    says.setAttribute("role", "status");
    place.append(says);
    says.textContent = "What you typed is kept. Cancel discards it.";
    return true;
  }
  dialog.addEventListener("keydown", (e) => { if (e.key === "Escape") kept(e); });
  dialog.addEventListener("cancel", kept); // as by a gesture
  document.addEventListener("click", (e) => {
    const link = e.target.closest("a[data-form]");
    if (link && !e.metaKey && !e.ctrlKey && !e.shiftKey) {
      e.preventDefault();
      opener = link;
      htmx.ajax("GET", link.href, { target: dialog, swap: "innerHTML" }).then(openDialog);
      return;
    }
    if (e.target.closest("dialog [data-close]")) { e.preventDefault(); dialog.close(); return; }
    if (e.target === pressed && (e.target === $("help") || e.target === dialog && !kept(e))) e.target.close();
    const copy = e.target.closest("[data-copy], [data-copy-from]");
    if (copy) copyText(copy);
  });
  let opener = null; // gets the focus back when the dialog closes
  function openDialog() {
    if (!dialog.firstElementChild) return;
    edited = false;
    if (!dialog.open) dialog.showModal();
    focusForm(dialog);
    checkJSON();
  }
  // The focus goes to the first error, else to the refusal. In a dangerous form it is never in a field, where Enter would submit it.
  function focusForm(place) {
    const first = place.querySelector(".wrong :is(input, textarea, select)") ?? place.querySelector(".refused")
      ?? place.querySelector("form[data-danger] h1") ?? place.querySelector("input:not([type=hidden]), textarea, select") ?? place.querySelector("button");
    first?.focus();
  }
  document.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && e.target.matches("form[data-danger] input:not([type=checkbox])")) e.preventDefault();
  });
  dialog.addEventListener("close", () => {
    dialog.replaceChildren();
    edited = false;
    const back = opener?.isConnected ? opener : [...document.querySelectorAll("a[data-form]")].find((a) => a.href === opener?.href);
    opener = null;
    back?.focus({ preventScroll: true });
    refresh(); // its effect may be visible
  });
  // A submission without a response may have taken effect. The form says so, and stays open.
  function unanswered(e) {
    const place = e.target.closest?.("form.form")?.querySelector(".refusal");
    if (!place) { if (e.target !== part) tell("No answer from the server", 4000); return; }
    const says = document.createElement("div");
    says.className = "refused";
    says.setAttribute("role", "alert");
    says.tabIndex = -1;
    says.append(Object.assign(document.createElement("strong"), { textContent: "No answer" }), " The change may have been made: check before you retry.");
    place.replaceChildren(says);
    says.focus();
  }
  for (const lost of ["htmx:sendError", "htmx:timeout"]) document.addEventListener(lost, unanswered);
  document.addEventListener("htmx:responseError", (e) => { if (e.detail.xhr.status >= 500 && e.detail.xhr.status !== 503) unanswered(e); }); // of a proxy
  document.addEventListener("htmx:afterSwap", (e) => {
    if (e.detail.requestConfig?.verb === "post") { focusForm(e.target.closest(".form-place") ?? e.target); checkJSON(); }
  });
  document.addEventListener("htmx:beforeRequest", (e) => {
    for (const b of e.target.querySelectorAll?.(".buttons button") ?? []) b.disabled = true;
  });
  document.addEventListener("htmx:afterRequest", (e) => {
    if (e.detail.xhr?.getResponseHeader("HX-Redirect")) return;
    for (const b of e.target.querySelectorAll?.(".buttons button") ?? []) b.disabled = false;
  });

  // ---- Ticked rows
  function showTicked() {
    const n = ticked().length;
    for (const e of part.querySelectorAll(".ticked-count")) e.textContent = n;
    for (const all of part.querySelectorAll("input[data-all]")) {
      const some = all.form.querySelectorAll("td.tick input");
      all.checked = n > 0 && n === some.length;
      all.indeterminate = n > 0 && !all.checked;
    }
    showLive();
    if (n === 0 && due) refresh();
  }
  part.addEventListener("change", (e) => {
    if (!e.target.matches(".tick input")) return;
    if (e.target.matches("[data-all]")) for (const one of e.target.form.querySelectorAll("td.tick input")) one.checked = e.target.checked;
    showTicked();
  });
  part.addEventListener("submit", (e) => {
    if (!e.target.matches(".ticks-form")) return;
    e.preventDefault();
    const q = new URLSearchParams(new FormData(e.target, e.submitter));
    opener = e.submitter;
    htmx.ajax("GET", `${e.target.getAttribute("action")}?${q}`, { target: dialog, swap: "innerHTML" }).then(openDialog);
  });

  // ---- Copy
  function tell(text, time = 1500) {
    $("tell").textContent = text;
    $("tell").classList.add("shown");
    clearTimeout(tell.timer);
    tell.timer = setTimeout(() => $("tell").classList.remove("shown"), time);
  }
  async function copyText(button) {
    const from = button.dataset.copyFrom; // next to or below the button
    const text = from ? button.closest(".document, .command").querySelector(from).textContent : button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch { // there is no clipboard API over plain HTTP
      const area = document.createElement("textarea");
      area.value = text;
      (button.closest("dialog") ?? document.body).append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    tell("Copied");
  }

  // ---- JSON fields are validated while typing.
  function checkJSON() {
    for (const area of document.querySelectorAll("textarea[data-json]")) {
      const says = area.parentElement.querySelector(".json-says");
      let wrong = "";
      try { if (area.value.trim() !== "") JSON.parse(area.value); } catch (e) { wrong = e.message; }
      says.textContent = area.value.trim() === "" ? "" : wrong || "valid JSON";
      says.classList.toggle("bad", wrong !== "");
    }
  }
  document.addEventListener("input", (e) => { if (e.target.matches("textarea[data-json]")) checkJSON(); });

  // ---- Forms that show what they would do
  function preview(form) {
    clearTimeout(preview.timer);
    preview.timer = setTimeout(() => {
      const filled = new FormData(form);
      const q = new URLSearchParams(["cron", "every", "time_zone"].map((name) => [name, filled.get(name) ?? ""]));
      htmx.ajax("GET", `${form.dataset.preview}?${q}`, { target: form.querySelector(".preview"), swap: "innerHTML" });
    }, 250);
  }
  document.addEventListener("input", (e) => { if (e.target.matches("form[data-preview] [name=cron], form[data-preview] [name=every], form[data-preview] [name=time_zone]")) preview(e.target.form); });
  for (const form of document.querySelectorAll("form[data-preview]")) preview(form);

  // ---- Light and dark
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  function toggleTheme() {
    const shown = document.documentElement.dataset;
    const dark = shown.theme ? shown.theme === "dark" : systemDark.matches;
    shown.theme = dark ? "light" : "dark";
    document.cookie = `pawl-theme=${shown.theme}; path=${root}; max-age=31536000; samesite=strict`;
  }
  $("theme-switch").addEventListener("click", toggleTheme);
  $("help-switch").addEventListener("click", () => $("help").showModal());

  // ---- Rows. Keys act on the row selected by j, k, Tab or a click. It is identified by its id, since refreshes move rows.
  const rows = () => [...part.querySelectorAll("[data-row]")];
  const rowOf = (node) => node?.closest?.("#live [data-row]");
  const opens = (row) => row?.querySelector("a.name, a");
  let chosen = "", place = -1, within = null; // its id, its last position, and the focused element in it
  function choose(row) {
    if (row.id !== chosen) $(chosen)?.removeAttribute("data-chosen");
    chosen = row.id;
    row.setAttribute("data-chosen", "");
    place = rows().indexOf(row);
  }
  // chosenRow is undefined if no row is selected, and null if it is gone, which is announced once.
  function chosenRow() {
    const focused = rowOf(document.activeElement);
    if (focused) choose(focused);
    if (!chosen) return undefined;
    const row = $(chosen);
    if (!row) { chosen = ""; tell("That row is no longer here", 3000); }
    return row;
  }
  function moveRow(by) {
    const row = chosenRow(), all = rows();
    if (row === null || all.length === 0) return;
    const from = row ? all.indexOf(row) + by : by > 0 ? Math.max(place, 0) : place - 1; // none selected: continue from the last position
    const next = all[Math.min(Math.max(from, 0), all.length - 1)];
    choose(next);
    opens(next)?.focus();
    next.scrollIntoView({ block: "nearest" });
  }
  function tickRow() {
    const row = chosenRow();
    if (row) row.querySelector("td.tick input")?.click();
    else if (row === undefined && part.querySelector("td.tick input")) tell("No row is selected: use j and k", 3000);
  }
  part.addEventListener("focusin", (e) => { const row = rowOf(e.target); if (row) choose(row); });
  // A refresh moves rows, and browsers remove the focus from moved elements.
  part.addEventListener("htmx:beforeSwap", () => { within = rowOf(document.activeElement) && document.activeElement; });
  part.addEventListener("htmx:afterSwap", () => {
    const row = chosen && $(chosen);
    if (row) place = rows().indexOf(row);
    if (within && document.activeElement !== within && row) (row.contains(within) ? within : opens(row))?.focus({ preventScroll: true });
    within = null;
  });

  // ---- Search completion: an ARIA combobox with a list. The server returns completions for the text up to the cursor. Tab and Enter
  // accept the selected one, and have their usual effect if none is selected.
  const search = $("search"), suggestions = $("search-list");
  const completer = { word: "", items: [], at: -1, timer: 0, asked: 0 };
  function closeList() {
    clearTimeout(completer.timer);
    completer.asked++; // responses still pending are not shown
    completer.items = [];
    completer.at = -1;
    suggestions.hidden = true;
    search.setAttribute("aria-expanded", "false");
    search.removeAttribute("aria-activedescendant");
  }
  function chooseItem(at) {
    completer.at = at;
    [...suggestions.children].forEach((li, i) => li.setAttribute("aria-selected", String(i === at)));
    const li = suggestions.children[at];
    if (!li) { search.removeAttribute("aria-activedescendant"); return; }
    search.setAttribute("aria-activedescendant", li.id);
    li.scrollIntoView({ block: "nearest" });
  }
  function showList(answer) {
    completer.word = answer.word;
    completer.items = answer.items;
    suggestions.replaceChildren(...answer.items.map((item, i) => {
      const li = document.createElement("li");
      li.id = `search-item-${i}`;
      li.setAttribute("role", "option");
      li.append(Object.assign(document.createElement("span"), { textContent: item.text }));
      if (item.note) li.append(Object.assign(document.createElement("small"), { textContent: item.note }));
      return li;
    }));
    suggestions.hidden = answer.items.length === 0;
    search.setAttribute("aria-expanded", String(answer.items.length > 0));
    chooseItem(-1);
  }
  async function askList() {
    const own = ++completer.asked, text = search.value.slice(0, search.selectionStart);
    try {
      const answer = await fetch(`${search.dataset.complete}?q=${encodeURIComponent(text)}`, { headers: { "HX-Request": "true" } });
      if (!answer.ok) throw new Error();
      const found = await answer.json();
      if (own === completer.asked && document.activeElement === search) showList(found);
    } catch { if (own === completer.asked) closeList(); }
  }
  function takeItem(at) {
    const item = completer.items[at], end = search.selectionStart, start = end - completer.word.length;
    if (!item || search.value.slice(start, end) !== completer.word) { closeList(); return; }
    search.setRangeText(item.text + (item.more ? "" : " "), start, end, "end");
    closeList();
    if (item.more) askList();
  }
  if (search) {
    for (const [name, value] of [["role", "combobox"], ["aria-autocomplete", "list"], ["aria-controls", suggestions.id], ["aria-expanded", "false"]]) search.setAttribute(name, value);
    search.addEventListener("input", () => { clearTimeout(completer.timer); completer.timer = setTimeout(askList, 120); });
    search.addEventListener("blur", closeList);
    suggestions.addEventListener("pointerdown", (e) => e.preventDefault()); // the field keeps the focus
    suggestions.addEventListener("click", (e) => { const li = e.target.closest("li"); if (li) takeItem([...suggestions.children].indexOf(li)); });
    search.addEventListener("keydown", (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing) return;
      const n = completer.items.length, down = e.key === "ArrowDown", up = e.key === "ArrowUp";
      if ((down || up) && n === 0) { e.preventDefault(); askList(); return; }
      if (n === 0) return;
      if (down || up) { e.preventDefault(); chooseItem(down ? (completer.at + 2) % (n + 1) - 1 : (completer.at + n + 1) % (n + 1) - 1); return; }
      if ((e.key === "Enter" || e.key === "Tab" && !e.shiftKey) && completer.at >= 0) { e.preventDefault(); takeItem(completer.at); return; }
      if (e.key === "Escape") { e.preventDefault(); closeList(); }
    });
  }

  // ---- Charts: a tooltip shows the values of the step under the pointer, or selected by the arrow keys, and describes markers. Screen
  // readers get the step as the value of a slider. The text is the element's title, which is removed so that the browser doesn't show it too.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  let tipAt = null, toldPlot = "", toldStep = ""; // the chart's index on the page, and the start of its step
  const plots = () => [...part.querySelectorAll("svg.bars")];
  const stepsOf = (plot) => [...plot.querySelectorAll("[data-step]")];
  function wordsOf(node) {
    const title = node.querySelector("title");
    if (title) { node.dataset.told = title.textContent; if (node.matches("a")) node.setAttribute("aria-label", title.textContent); title.remove(); }
    return node.dataset.told.split("\n");
  }
  function showTip(node, at, legend) {
    const [first, ...rest] = wordsOf(node);
    const head = document.createElement("b");
    head.textContent = first;
    tip.replaceChildren(head, ...rest.map((line, i) => {
      const row = document.createElement("span"), [, word, n] = line.match(/^(.*): ([\d,]+)$/) ?? [null, line, ""];
      if (legend?.[i]) row.append(legend[i].querySelector(".swatch").cloneNode());
      row.append(word);
      if (n) { const value = document.createElement("em"); value.textContent = n; row.append(value); }
      return row;
    }));
    tip.hidden = false;
    tipAt = at;
    placeTip();
    return [first, ...rest].join(", ");
  }
  function placeTip() {
    if (tip.hidden || !tipAt?.isConnected) return;
    const place = tipAt.getBoundingClientRect(), above = tipAt.closest(".plot").getBoundingClientRect();
    const right = place.right + 10 + tip.offsetWidth < document.documentElement.clientWidth;
    tip.style.left = `${Math.max(right ? place.right + 10 : place.left - tip.offsetWidth - 10, 4)}px`;
    tip.style.top = `${above.top + 20}px`;
  }
  function hush() {
    part.querySelector(".told")?.classList.remove("told");
    tip.hidden = true;
    toldStep = "";
  }
  function tellStep(plot, step) {
    hush();
    if (!step) return;
    step.classList.add("told");
    toldPlot = plots().indexOf(plot);
    toldStep = step.dataset.step;
    const says = showTip(step, step.querySelector(".hit"), plot.closest(".chart").querySelectorAll(".legend li"));
    plot.setAttribute("aria-valuenow", String(stepsOf(plot).indexOf(step)));
    plot.setAttribute("aria-valuetext", says);
  }
  function sliders() {
    for (const plot of plots()) {
      const last = stepsOf(plot).length - 1;
      if (last < 0) continue;
      for (const [name, value] of [["role", "slider"], ["tabindex", "0"], ["aria-valuemin", "0"], ["aria-valuemax", String(last)]]) plot.setAttribute(name, value);
      if (!plot.hasAttribute("aria-valuenow")) plot.setAttribute("aria-valuenow", String(last));
    }
    const plot = plots()[toldPlot], step = toldStep && plot?.querySelector(`[data-step="${CSS.escape(toldStep)}"]`);
    if (step) tellStep(plot, step); else if (toldStep) hush();
  }
  const keep = Idiomorph.defaults.callbacks.beforeAttributeUpdated;
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node, how) => !(node.matches?.("svg.bars") && /^(role|tabindex|aria-value)/.test(name)) && keep(name, node, how);
  part.addEventListener("pointerover", (e) => {
    const step = e.target.closest?.("svg.bars [data-step]"), flag = e.target.closest?.(".flag");
    if (step) tellStep(step.closest("svg.bars"), step);
    else if (flag) { hush(); showTip(flag, flag.querySelector(".hit")); }
  });
  part.addEventListener("pointerout", (e) => {
    if (!e.target.closest?.(".plot") || e.relatedTarget?.closest?.("[data-step], .flag")) return;
    hush();
  });
  part.addEventListener("focusin", (e) => {
    if (e.target.matches("svg.bars")) { if (!toldStep) tellStep(e.target, stepsOf(e.target)[e.target.getAttribute("aria-valuenow")] ?? stepsOf(e.target).at(-1)); }
    else if (e.target.matches(".flag")) showTip(e.target, e.target.querySelector(".hit"));
  });
  part.addEventListener("focusout", (e) => { if (e.target.matches("svg.bars, .flag")) hush(); });
  addEventListener("scroll", placeTip, { passive: true });
  part.addEventListener("keydown", (e) => {
    if (!e.target.matches("svg.bars") || e.ctrlKey || e.metaKey || e.altKey) return;
    const steps = stepsOf(e.target), now = steps.findIndex((s) => s.dataset.step === toldStep);
    const from = now < 0 ? Number(e.target.getAttribute("aria-valuenow")) : now;
    const to = { ArrowLeft: from - 1, ArrowDown: from - 1, ArrowRight: from + 1, ArrowUp: from + 1, PageUp: from - 10, PageDown: from + 10, Home: 0, End: steps.length - 1 }[e.key];
    if (e.key === "Escape") hush();
    if (to === undefined) return;
    e.preventDefault();
    tellStep(e.target, steps[Math.min(Math.max(to, 0), steps.length - 1)]);
  });
  document.addEventListener("htmx:afterSettle", sliders);
  sliders();

  // ---- Keys
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    const typing = e.target.matches("input:not([type=checkbox]), textarea, select");
    if (typing) { if (e.key === "Escape") e.target.blur(); return; }
    if (document.querySelector("dialog[open]")) return;
    if (e.key === "Enter" && chosen && e.target === document.body) { e.preventDefault(); opens(chosenRow())?.click(); return; }
    if (document.body.dataset.keys === "off") return;
    const act = {
      "/": () => { $("search").focus(); $("search").select(); },
      "?": () => $("help").showModal(),
      ".": toggleTheme,
      l: togglePause,
      j: () => moveRow(1),
      k: () => moveRow(-1),
      x: tickRow,
    }[e.key];
    if (act) { e.preventDefault(); act(); return; }
    const link = [...document.querySelectorAll(".menu a[data-key]")].find((a) => a.dataset.key === e.key);
    if (link) { e.preventDefault(); link.click(); }
  });

  // ---- Menus. Every response carries the counts next to the entries; an open menu closes on a click elsewhere.
  document.addEventListener("htmx:afterRequest", (e) => {
    const told = e.target === part && e.detail.xhr?.getResponseHeader("Pawl-Menu");
    for (const one of told ? told.split(" ") : []) {
      const [path, n] = one.split("="), at = document.querySelector(`.menu [data-count="${path}"]`);
      if (!at) continue;
      at.textContent = n.replace("!", "");
      at.classList.toggle("urgent", n.endsWith("!"));
      at.hidden = n === "0";
    }
  });
  const closePops = (but) => { for (const pop of document.querySelectorAll("details.pop[open]")) if (pop !== but) pop.open = false; };
  document.addEventListener("click", (e) => closePops(e.target.closest("summary")?.parentElement));
  document.addEventListener("keydown", (e) => {
    const pop = e.key === "Escape" && document.querySelector("details.pop[open]");
    if (pop) { closePops(); pop.querySelector("summary").focus(); }
  });

  showLive();
  checkJSON();
  watch();
  setTimeout(() => $("said")?.classList.add("gone"), 6000);
})();
