// The dashboard's only script. Every page works without it; with it, pages update by themselves, long searches continue
// by themselves, tables fit a phone, and users can choose a dark or light theme.
"use strict";

const LOOK_MS = 1000;
const LATER_MS = 5000;
const MOST_ROWS = 500;

// --- Dark and light -------------------------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];

function remembered(name) {
  try { return localStorage.getItem(name); } catch (error) { return null; }
}

function remember(name, value) {
  try { localStorage.setItem(name, value); } catch (error) { /* Private windows may refuse. */ }
}

function wearTheme(theme) {
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", theme);
  const button = document.getElementById("theme");
  if (button) {
    button.hidden = false;
    button.textContent = `Theme: ${theme}`;
  }
}

let theme = THEMES.includes(remembered("sidekiq-py-theme")) ? remembered("sidekiq-py-theme") : "auto";
wearTheme(theme);
document.getElementById("theme")?.addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  remember("sidekiq-py-theme", theme);
  wearTheme(theme);
});

// --- Tables on narrow screens ---------------------------------------------------------------------------------------

const MOST_COLUMNS_OF_A_PHONE = 3;

// On a narrow screen each row of a wide table becomes a block, and each cell shows the head of its column (style.css).
function labelCells(page) {
  for (const table of page.querySelectorAll(".scroll > table")) {
    const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent.replace("↓", "").trim());
    if (heads.length <= MOST_COLUMNS_OF_A_PHONE) continue;
    table.classList.add("stacked");
    for (const body of table.tBodies) {
      for (const row of body.rows) [...row.cells].forEach((cell, column) => { cell.dataset.head = heads[column]; });
    }
  }
}

labelCells(document);

// --- Live parts -----------------------------------------------------------------------------------------------------

// Makes *old* look like *fresh* and keeps every node that need not change, so that focus, selection and unfolded parts
// stay as they are. The node with the focus is never removed while *fresh* has a counterpart of it.
function patch(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(document.importNode(fresh, true));
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = fresh.nodeValue;
    return;
  }
  const isFolding = old.nodeName === "DETAILS";
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(isFolding && name === "open")) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value && !(isFolding && name === "open")) old.setAttribute(name, value);
  }
  patchChildren(old, fresh);
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
}

function patchChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.childNodes) if (keyOf(child) !== null) keyed.set(keyOf(child), child);
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    let child = key === null ? place : keyed.get(key) ?? null;
    if (key === null) while (child !== null && keyOf(child) !== null) child = child.nextSibling;
    if (child === null) {
      old.insertBefore(document.importNode(wanted, true), place);
      continue;
    }
    if (child !== place && !child.contains(document.activeElement)) old.insertBefore(child, place);
    else if (child !== place) {
      // Moving this node would take the focus away, so move the nodes before it to the end instead.
      while (place !== child) {
        const next = place.nextSibling;
        old.append(place);
        place = next;
      }
    }
    const after = child.nextSibling;
    patch(child, wanted);
    place = after;
    keyed.delete(key);
  }
  while (place !== null) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

class Live {
  constructor(part) {
    this.part = part;
    this.button = document.getElementById("pause-live");
    this.trouble = document.getElementById("live-trouble");
    this.isPaused = remembered("sidekiq-py-paused") === "yes";
    this.canStream = document.body.dataset.liveBy === "stream" && "EventSource" in window;
    this.source = null;
    this.timer = null;
    this.button.hidden = false;
    this.button.addEventListener("click", () => {
      this.isPaused = !this.isPaused;
      remember("sidekiq-py-paused", this.isPaused ? "yes" : "no");
      this.begin();
    });
    document.addEventListener("visibilitychange", () => this.begin());
    this.begin();
  }

  begin() {
    this.button.setAttribute("aria-pressed", String(this.isPaused));
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
    if (this.isPaused || document.hidden) return;
    if (this.canStream) this.stream();
    else this.poll();
  }

  address(how) {
    const address = new URL(location.href);
    address.searchParams.set("live", how);
    return address;
  }

  stream() {
    const source = new EventSource(this.address("stream"));
    this.source = source;
    source.addEventListener("page", (event) => this.show(event.data));
    source.addEventListener("trouble", (event) => this.tell(event.data));
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return; // It reconnects by itself.
      this.canStream = false;
      this.poll();
    };
  }

  async poll() {
    let pause = document.body.dataset.liveBy === "stream" ? LATER_MS : LOOK_MS;
    try {
      const reply = await fetch(this.address("1"), { headers: { accept: "text/html" }, redirect: "error" });
      if (reply.ok) this.show(await reply.text());
      else {
        this.tell("This page cannot be refreshed right now. Reload it to see why.");
        pause = LATER_MS;
      }
    } catch (error) {
      this.tell("The dashboard cannot be reached. This page shows the last data it received.");
      pause = LATER_MS;
    }
    clearTimeout(this.timer);
    if (!this.isPaused && !document.hidden) this.timer = setTimeout(() => this.poll(), pause);
  }

  show(html) {
    this.trouble.hidden = true;
    const parsed = new DOMParser().parseFromString(`<div>${html}</div>`, "text/html");
    labelCells(parsed);
    patchChildren(this.part, parsed.body.firstElementChild);
  }

  tell(text) {
    if (this.trouble.hidden || this.trouble.textContent !== text) this.trouble.textContent = text;
    this.trouble.hidden = false;
  }
}

const live = document.getElementById("live");
if (live) new Live(live);

// --- Lists of jobs --------------------------------------------------------------------------------------------------

const chooseAll = document.getElementById("choose-all");
if (chooseAll) {
  chooseAll.hidden = false;
  chooseAll.addEventListener("change", () => {
    for (const box of document.querySelectorAll('#jobs input[name="key"]')) box.checked = chooseAll.checked;
  });
}

async function read(address) {
  const reply = await fetch(address, { headers: { accept: "text/html" }, redirect: "error" });
  if (!reply.ok) throw new Error(reply.statusText);
  const page = new DOMParser().parseFromString(await reply.text(), "text/html");
  labelCells(page);
  return page;
}

// A search through a large set shows what it has found so far, and continues until the user stops it.
async function keepLooking(link) {
  const stop = document.createElement("button");
  stop.type = "button";
  stop.textContent = "Stop looking";
  let isStopped = false;
  stop.addEventListener("click", () => { isStopped = true; });
  link.parentNode.append(" ", stop);
  while (!isStopped && document.querySelectorAll("#rows tr").length < MOST_ROWS) {
    const fresh = await read(link.href);
    const rows = [...fresh.querySelectorAll("#rows tr")];
    const table = document.getElementById("rows");
    if (rows.length && !table) {
      location.assign(link.href); // These are the first matches, and only their page has the table.
      return;
    }
    for (const row of rows) table.append(document.importNode(row, true));
    const looked = fresh.getElementById("looked");
    if (looked) document.getElementById("looked").textContent = looked.textContent;
    const next = fresh.getElementById("more") ?? fresh.querySelector('.pager a[rel="next"]');
    if (!next) {
      link.remove();
      break;
    }
    link.href = next.href;
  }
  stop.remove();
}

const more = document.getElementById("more");
if (more) keepLooking(more).catch(() => { /* The link stays, and the user can click it. */ });

async function countOn() {
  for (let link = document.getElementById("count-on"); link; link = document.getElementById("count-on")) {
    if (link === document.activeElement) return;
    const fresh = await read(link.href);
    document.getElementById("count").replaceWith(document.importNode(fresh.getElementById("count"), true));
    document.getElementById("counted").value = fresh.getElementById("counted").value;
  }
}

countOn().catch(() => { /* The link stays, and the user can click it. */ });

// --- Forms ----------------------------------------------------------------------------------------------------------

// A double click on a button must not enqueue a job twice.
let sent = new WeakSet();
window.addEventListener("pageshow", () => { sent = new WeakSet(); });

document.addEventListener("submit", (event) => {
  const form = event.target;
  const question = event.submitter?.dataset.ask ?? form.dataset.ask;
  if (sent.has(form) || (question && !window.confirm(question))) {
    event.preventDefault();
    return;
  }
  if (form.method === "post") sent.add(form);
  if (!question) return;
  // Without this answer, the server asks on a page of its own.
  const sure = document.createElement("input");
  Object.assign(sure, { type: "hidden", name: "sure", value: "yes" });
  form.append(sure);
});
