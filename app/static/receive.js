// A photograph dropped or pasted anywhere on the page goes the way of a chosen file: into the
// upload button of the tab that is shown. What the server would not take is refused before it is sent.

const finders = [];

/**
 * Let a tab receive files.
 * @param {string} name  of the row that holds the tab's upload button, as `chooser.row` names it
 * @param {number} maxBytes  size of the largest file that is sent
 * @param {(sentence: string) => void} say  tells why a file is not
 */
export function receivePhotos(name, maxBytes, say) {
  const findInput = () => document.querySelector(`#${name}-toolbar input[type=file]`);
  if (finders.push(findInput) === 1) listen();
  refuseLargeFiles(findInput, maxBytes, say);
}

function refuseLargeFiles(findInput, maxBytes, say) {
  const refuse = (event) => {
    const [file] = event.target === findInput() ? event.target.files : [];
    if (!file || file.size <= maxBytes) return;
    event.stopImmediatePropagation();
    event.target.value = ""; // so that the same file can be chosen again
    const megabytes = (bytes) => (bytes / 1e6).toFixed(bytes % 1e6 ? 1 : 0);
    say(`${file.name} has ${megabytes(file.size)} MB, more than the ${megabytes(maxBytes)} MB allowed: choose a smaller file.`);
  };
  document.addEventListener("change", refuse, { capture: true }); // before Gradio hears of it
}

/** The file input of the tab that is shown. */
function shownInput() {
  return finders.map((find) => find()).find((input) => input?.closest(".lab-toolbar").checkVisibility());
}

function listen() {
  let depth = 0; // dragenter and dragleave come in pairs, once per element crossed
  const hover = (on) => document.body.classList.toggle("lab-dropping", on);
  const carriesFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");

  const give = (files) => {
    const input = shownInput();
    if (!input || !files?.length) return false;
    const one = new DataTransfer();
    one.items.add(files[0]);
    input.files = one.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
    return true;
  };

  document.addEventListener("dragenter", (event) => {
    if (carriesFiles(event)) hover(++depth > 0);
  });
  document.addEventListener("dragleave", (event) => {
    if (carriesFiles(event)) hover(--depth > 0);
  });
  document.addEventListener("dragover", (event) => {
    if (carriesFiles(event)) event.preventDefault();
  });
  document.addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    depth = 0;
    hover(false);
    give(event.dataTransfer.files);
  });
  document.addEventListener("paste", (event) => {
    if (give(event.clipboardData?.files)) event.preventDefault();
  });
}
