// Files beside a question: chosen, dropped, pasted or taken away again. The text of one goes into the prompt; pictures and videos are shown.

const MOST_FILE_BYTES = 1 << 20;
let attached = [];

async function attach(files) {
  for (const file of files) {
    try {
      attached.push(isPicture(file) ? await pictureOf(file) : isVideo(file) ? await videoOf(file) : { name: file.name, text: await textOf(file) });
    } catch (error) {
      toast(sentenceOf(error));
    }
  }
  showFiles();
  $("text").focus();
}

async function textOf(file) {
  if (file.size > MOST_FILE_BYTES) throw new Failure(`${file.name} is larger than 1 MiB. Attach only the part you need.`);
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return text;
  } catch { /* said below */ }
  throw new Failure(`${file.name} is not a text file. ${seesPictures() ? `This model takes ${whatIsTaken()}` : "This model takes text files only"}.`);
}

function showFiles() {
  $("files").hidden = !attached.length;
  $("files").replaceChildren(...attached.map((file, index) => make("span", { class: "chip" }, ...(file.url ? [make("img", { src: file.url, alt: "" })] : []), file.name,
    iconButton("close", `Remove ${file.name}`, () => {
      attached.splice(index, 1);
      showFiles();
    }))));
}

const whatIsTaken = () => new Intl.ListFormat("en", { type: "disjunction" }).format([...(seesPictures() ? ["pictures"] : []), ...(seesVideos() ? ["videos"] : []), "text files"]);

function showWhatIsTaken() {
  const label = `Attach ${whatIsTaken()}`;
  Object.assign($("attach"), { title: label, ariaLabel: label });
}

$("text").addEventListener("paste", (event) => {
  const files = [...event.clipboardData.files];
  if (!files.length || event.clipboardData.getData("text/plain")) return; // a text that is copied as a picture, too
  event.preventDefault();
  attach(files);
});
$("attach").onclick = () => $("attached").click();
$("attached").onchange = () => {
  attach([...$("attached").files]);
  $("attached").value = "";
};
$("view-talk").addEventListener("dragover", (event) => {
  event.preventDefault();
  $("view-talk").classList.add("dropping");
});
for (const kind of ["dragleave", "drop"]) $("view-talk").addEventListener(kind, () => $("view-talk").classList.remove("dropping"));
$("view-talk").addEventListener("drop", (event) => {
  event.preventDefault();
  attach([...event.dataTransfer.files]);
});
