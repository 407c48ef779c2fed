// Live updates, ages of times, and keys. Without this module every page can be read, and every form sent.

const page = document.documentElement;
const prefix = page.dataset.prefix;

// --- live updates ----------------------------------------------------------------------------------------------------

const button = document.querySelector("#live");
const stale = document.querySelector("#stale");
const PATIENCE = 3000; // every stream ends after some minutes: only a server that stays away is reported
let source = null;
let alarm = 0;
let isPaused = sessionStorage.getItem("holdfast.paused") === "yes";

function connect() {
  const isWanted = document.body.dataset.live === "yes" && !isPaused && !document.hidden;
  if (isWanted === (source !== null)) return;
  if (!isWanted) {
    source.close();
    source = null;
    clearTimeout(alarm);
    alarm = 0;
    return;
  }
  const here = location.pathname.slice(prefix.length) + location.search;
  source = new EventSource(`${prefix}/live?of=${encodeURIComponent(here)}`);
  source.addEventListener("part", (event) => {
    const { part, html } = JSON.parse(event.data);
    warn(null);
    replace(part, html);
  });
  source.addEventListener("problem", (event) => warn(JSON.parse(event.data).detail));
  source.addEventListener("error", () => {
    alarm ||= setTimeout(() => warn("The server cannot be reached."), PATIENCE);
    if (source?.readyState === EventSource.CLOSED) { // it refused: the browser does not try again by itself
      source = null;
      setTimeout(connect, PATIENCE);
    }
  });
  source.addEventListener("open", () => warn(null));
}

function warn(text) {
  clearTimeout(alarm);
  alarm = 0;
  stale.hidden = text === null;
  if (text !== null) stale.querySelector("span").textContent = `${text} What you see is not current.`;
  document.querySelector("main").classList.toggle("stale", text !== null);
}

const held = new Map();

function replace(part, html) {
  const old = document.querySelector(`[data-live="${part}"]`);
  if (old === null) return;
  if (isBusy(old)) {
    held.set(part, html); // the server sends it only once: it is shown when the viewer has finished
    return;
  }
  held.delete(part);
  const fresh = old.cloneNode(false);
  fresh.innerHTML = html;
  const focused = document.activeElement;
  morph(old, fresh);
  if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true }); // it moved
}

// Rows that are selected, and fields that are written in, must not change under the hand.
function isBusy(element) {
  const active = document.activeElement;
  const isWriting = element.contains(active) && active.matches("input[type=text], input[type=search], select");
  return isWriting || element.querySelector("input[type=checkbox]:checked") !== null;
}

function release() {
  for (const [part, html] of [...held]) replace(part, html);
}
document.addEventListener("change", release);
document.addEventListener("focusout", () => setTimeout(release));

// Make `old` equal to `fresh` with as few changes as possible, so that focus, scrolling and open details survive. Rows
// are paired by their keys, all else by its place.
function morph(old, fresh) {
  const wanted = [...fresh.childNodes];
  const keys = new Set(wanted.map(keyOf));
  const rows = new Map();
  for (const child of [...old.childNodes]) {
    const key = keyOf(child);
    const isMark = child.nodeType === Node.COMMENT_NODE; // around a part, in the page as it was loaded
    if (isMark || (key !== undefined && !keys.has(key))) child.remove();
    else if (key !== undefined) rows.set(key, child);
  }
  for (const [place, next] of wanted.entries()) {
    const at = () => old.childNodes[place] ?? null;
    const row = rows.get(keyOf(next));
    while (row && at() !== row && keyOf(at()) === undefined) at().remove();
    if (row && at() !== row) old.insertBefore(row, at());
    if (row) update(row, next);
    else if (at() === null || keyOf(at()) !== undefined) old.insertBefore(next, at());
    else update(at(), next);
  }
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

function update(present, next) {
  if (present.nodeType !== next.nodeType || present.nodeName !== next.nodeName) present.replaceWith(next);
  else if (present.nodeType !== Node.ELEMENT_NODE) {
    if (present.nodeValue !== next.nodeValue) present.nodeValue = next.nodeValue;
  } else {
    for (const { name, value } of next.attributes)
      if (present.getAttribute(name) !== value) present.setAttribute(name, value);
    for (const { name } of [...present.attributes])
      if (!next.hasAttribute(name) && name !== "open") present.removeAttribute(name);
    morph(present, next);
  }
}

function keyOf(node) {
  return node.dataset?.key;
}

function showPause() {
  button.setAttribute("aria-pressed", String(isPaused));
  button.querySelector("span").textContent = isPaused ? "Paused" : "Live";
  button.querySelector(".icon").classList.toggle("pulse", !isPaused);
}

if (button !== null) {
  button.hidden = false;
  showPause();
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    sessionStorage.setItem("holdfast.paused", isPaused ? "yes" : "no");
    showPause();
    connect();
  });
  document.addEventListener("visibilitychange", connect);
  window.addEventListener("pagehide", () => source?.close());
  connect();
}

// --- ages ------------------------------------------------------------------------------------------------------------

const STEPS = [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]];

function span(seconds) {
  for (const [size, unit, lesser, lesserUnit] of STEPS) {
    if (seconds < size) continue;
    const small = Math.floor((seconds % size) / lesser);
    return `${Math.floor(seconds / size)}${unit}${small ? ` ${small}${lesserUnit}` : ""}`;
  }
  return `${Math.floor(seconds)}s`;
}

function age() {
  if (document.hidden || isPaused) return;
  for (const time of document.querySelectorAll("time")) {
    const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
    const text = seconds < 0 ? `in ${span(-seconds)}` : `${span(seconds)} ago`;
    if (time.firstChild.nodeValue !== text) time.firstChild.nodeValue = text;
  }
}
setInterval(age, 1000);

// --- selecting rows --------------------------------------------------------------------------------------------------

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-all]"))
    for (const box of event.target.form.querySelectorAll("input[name=id]")) box.checked = event.target.checked;
});

// --- phones: the current page and tab may be outside of their bars --------------------------------------------------

for (const each of document.querySelectorAll(".nav [aria-current], .tabs [aria-current]"))
  each.scrollIntoView({ block: "nearest", inline: "center" });

// --- keys ------------------------------------------------------------------------------------------------------------

const PAGES = { o: "/", j: "/jobs", e: "/errors", q: "/queues", t: "/tasks", w: "/workers", l: "/leases",
  s: "/schedules", m: "/streams", b: "/operations", a: "/audit", y: "/system" };
const help = document.querySelector("#help");
let isGoing = false;

function move(step) {
  const rows = [...document.querySelectorAll("main tbody tr")].filter((each) => each.querySelector("a"));
  const at = rows.indexOf(document.activeElement?.closest("tr"));
  rows[Math.min(Math.max(at + step, 0), rows.length - 1)]?.querySelector("a").focus();
}

// The rows of the list that may be selected; the one with the focus is the current one.
function box() {
  return document.activeElement?.closest("tr")?.querySelector("input[name=id]");
}

function toggle() {
  const current = box();
  if (current) current.click();
  return Boolean(current);
}

// On the page of a job: its button. In a list: a preview of what is selected, or of the current row.
function act(verb) {
  const own = document.querySelector(`main header button[data-verb="${verb}"]`);
  const choice = document.querySelector("#verb");
  if (own !== null) own.click();
  else if ([...(choice?.options ?? [])].some((option) => option.value === verb)) {
    if (document.querySelector("input[name=id]:checked") === null && !toggle()) return;
    choice.value = verb;
    choice.form.querySelector("button[value=selected]").click();
  }
}

function press(key) {
  if (isGoing) {
    isGoing = false;
    if (key in PAGES) location.assign(prefix + PAGES[key]);
    return key in PAGES;
  }
  switch (key) {
    case "g": isGoing = true; setTimeout(() => { isGoing = false; }, 1500); return true;
    case "/": document.querySelector("input[type=search]")?.focus(); return true;
    case "?": help.showModal(); return true;
    case "j": move(1); return true;
    case "k": move(-1); return true;
    case "x": return toggle();
    case "r": act("retry"); return true;
    case "c": act("cancel"); return true;
    case "p": button?.click(); return true;
    default: return false;
  }
}

document.addEventListener("keydown", (event) => {
  if (page.dataset.keys === "off" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input:not([type=checkbox]), select, textarea") || help.open) return;
  if (press(event.key)) event.preventDefault();
});
for (const each of document.querySelectorAll("[data-help]")) {
  each.hidden = false;
  each.addEventListener("click", () => help.showModal());
}
