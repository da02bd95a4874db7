// The views and how one gets from one to another: tabs by pointer and arrows, drawers on narrow windows, Escape.

const VIEWS = ["talk", "notebook", "live"];
const isNarrow = () => matchMedia("(max-width: 860px)").matches;
const isTouched = () => matchMedia("(pointer: coarse)").matches;

function view(name) {
  for (const each of VIEWS) {
    $(`view-${each}`).hidden = each !== name;
    $(`tab-${each}`).setAttribute("aria-selected", String(each === name));
    $(`tab-${each}`).tabIndex = each === name ? 0 : -1;
  }
  document.body.dataset.view = name;
  sessionStorage.setItem("penstock.view", name);
  toggleDrawer("sidebar", name === "talk" && !isNarrow());
  if (isNarrow()) toggleDrawer("settings", false); // it would lie above what was asked for
  if (name === "live") {
    for (const plot of plots) plot.draw();
    look();
  }
}

for (const name of VIEWS) $(`tab-${name}`).onclick = () => view(name);

$("tabs").addEventListener("keydown", (event) => {
  const at = VIEWS.findIndex((name) => !$(`view-${name}`).hidden);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: VIEWS.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const name = VIEWS.at(to % VIEWS.length);
  view(name);
  $(`tab-${name}`).focus();
});

function toggleDrawer(name, isOpen) {
  const opens = isOpen ?? $(name).hidden;
  $(name).hidden = !opens;
  $(`open-${name}`).setAttribute("aria-expanded", String(opens));
  if (opens && isNarrow()) $(name === "sidebar" ? "settings" : "sidebar").hidden = true;
  $("shade").hidden = !isNarrow() || ($("sidebar").hidden && $("settings").hidden);
  if (name === "settings") sessionStorage.setItem("penstock.settings-open", String(opens));
}

$("open-sidebar").onclick = () => {
  if ($("view-talk").hidden) view("talk");
  toggleDrawer("sidebar");
};
$("open-settings").onclick = () => {
  toggleDrawer("settings");
  if (!$("settings").hidden && !isTouched()) $("system").focus({ preventScroll: true });
};

function closeDrawers() {
  if ($("shade").hidden) return false;
  for (const name of ["sidebar", "settings"]) if (!$(name).hidden) toggleDrawer(name, false);
  return true;
}

$("shade").onclick = closeDrawers;

document.addEventListener("keydown", (event) => {
  if (event.isComposing || document.querySelector("dialog[open]")) return;
  const isWritten = event.target.matches?.("input, textarea, select");
  if (event.key === "?" && !isWritten) showKeys();
  if (event.key !== "Escape" || endToast() || closeDrawers()) return;
  if (!$("view-talk").hidden) stop();
  else notebookStop?.abort();
});

// --- what keys do ----------------------------------------------------------------------------------------------------

const KEYS = [
  ["Enter", "send the question"], ["Shift + Enter", "add a line"], ["↑", "in an empty field: edit the last question"],
  ["Escape", "stop the answer, or close a panel"], ["Ctrl + Enter", "in the notebook: continue; in an edited answer: save it"],
  ["← →", "on the tabs: switch views; on a plot: move in time"], ["?", "show these shortcuts"],
];

$("keys").append(...KEYS.flatMap(([keys, work]) => [make("dt", {}, make("kbd", {}, keys)), make("dd", {}, work)]));

const showKeys = () => $("keys-dialog").showModal();

$("open-keys").onclick = showKeys;
