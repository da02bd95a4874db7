// What happens when the page opens: what was kept is read, the server is asked what it has.

async function start() {
  makeSettings();
  makePlots();
  current = begun();
  const openSettings = sessionStorage.getItem("penstock.settings-open");
  view(VIEWS.includes(sessionStorage.getItem("penstock.view")) ? sessionStorage.getItem("penstock.view") : "talk");
  toggleDrawer("settings", !isNarrow() && (openSettings ? openSettings === "true" : innerWidth >= 1280));
  await openStorage();
  await readAll();
  show(conversations.get(sessionStorage.getItem("penstock.conversation")) ?? current);
  await listModels();
  readFigures();
  showBar();
  setInterval(look, EVERY);
  look();
}

async function readAll() {
  for (const each of await readConversations()) if (!answering.has(each.id)) conversations.set(each.id, endRunning(each));
}

// Another tab has changed something. One that is answered there is shown when it is complete.
pagesOfOurs.onmessage = async ({ data }) => {
  if (answering.has(data)) return;
  const found = await readConversation(data);
  if (found) conversations.set(data, found);
  else conversations.delete(data);
  showSidebar();
  if (current.id !== data || !found) return;
  current = found;
  showConversation();
};

$("model").onchange = () => {
  localStorage.setItem("penstock.model", $("model").value);
  makePlots();
  listModels();
};
matchMedia("(max-width: 860px)").addEventListener("change", () => {
  toggleDrawer("sidebar", !isNarrow() && !$("view-talk").hidden);
  if (isNarrow()) toggleDrawer("settings", false);
});
addEventListener("resize", fit);
start();
