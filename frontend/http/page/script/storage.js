// Conversations as the browser keeps them: one record each, in IndexedDB. Where it keeps nothing they live as long as the page.

const MOST_CONVERSATIONS = 1000;

let database = null;
const pagesOfOurs = new BroadcastChannel("penstock"); // other tabs with this page

const settled = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

async function openStorage() {
  try {
    const opening = indexedDB.open("penstock", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("conversations", { keyPath: "id" });
    database = await settled(opening);
  } catch {
    toast("This browser can't store conversations for this page. They will be lost when it closes; export those you need.");
  }
}

const records = (mode) => database.transaction("conversations", mode).objectStore("conversations");

async function readConversations() {
  if (!database) return [];
  try {
    return (await settled(records("readonly").getAll())).map(asConversation).filter(Boolean);
  } catch {
    toast("This browser can't read the stored conversations. Reload the page to try again.");
    return [];
  }
}

const readConversation = async (id) => database ? asConversation(await settled(records("readonly").get(id))) : undefined;

// Whether it is kept; else a person is told.
async function keep(conversation) {
  if (!database || !conversations.has(conversation.id)) return true; // it has been deleted meanwhile
  try {
    await settled(records("readwrite").put(conversation));
    pagesOfOurs.postMessage(conversation.id);
    return true;
  } catch (error) {
    toast(error.name === "QuotaExceededError"
      ? "The browser has no space left for this conversation. Export and delete older ones."
      : "The browser could not store this conversation. Export it so that it isn't lost.");
    return false;
  }
}

async function forget(id) {
  if (!database) return;
  await settled(records("readwrite").delete(id));
  pagesOfOurs.postMessage(id);
}
