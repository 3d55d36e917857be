// The page without a server: choose an image, the model runs here, and rail and view of the app show its attention.

import { AttentionView } from "../views/attention_view.js";
import { el } from "../views/dom.js";
import { Refusal, memory } from "../views/encoding.js";
import { store } from "../views/own_store.js";
import { RailView } from "../views/rail_view.js";
import { decode, encode, loadModel } from "./model.js";

const OPTIONS = {
  quantity: { attention: "Attention", "key-similarity": "Key similarity", logits: "q · k", "key-cosine": "Key cosine" },
  layer: { heat: "Heat", light: "Light", mask: "Mask" },
  size: Object.fromEntries([112, 168, 224, 320, 448].map((size) => [size, `${size} pixels`])),
};
const LIVE_SIZE = 112;
const CONTROLS = ["quantity", "layer", "mass"];

const part = (id) => /** @type {any} */ (document.getElementById(id));
const bare = { watch: () => {}, emit: () => {} };
const address = (name) => new URL(`../examples/${name}.jpg`, import.meta.url).href;

const view = new AttentionView({
  ...bare,
  element: part("stage").firstElementChild,
  props: { numbers: true, blocks: true, aside: "aside" },
});
const model = loadModel();
let newest = 0;

/** The rail of the app; own files stay in the browser. */
class SiteRail extends RailView {
  async ready(item) {
    (await decode(item.file, item.title)).close();
    item.name ||= `${item.id}/${item.title}`;
    await store.put(item);
    return item.name;
  }
}

const names = part("rail").firstElementChild.dataset.examples.split(" ");
const rail = new SiteRail({
  ...bare,
  element: part("rail").firstElementChild,
  emit: () => show(),
  props: {
    kind: "image",
    accept: "image/*",
    label: "Open or drop images",
    remembers: "site",
    camera: "stage",
    previews: true,
    examples: names.map((name) => [name, name.replaceAll("_", " "), address(name)]),
  },
  server: {
    frame: async ({ image }) => {
      newest++; // an image that is being computed is not shown any more
      memory.clear(); // of the frame before
      return encode(await model, await (await fetch(image)).blob(), "camera", LIVE_SIZE);
    },
    forget: async () => {},
  },
});

/** Encode the chosen image and show it; of several the newest wins. */
async function show() {
  const turn = ++newest;
  const { chosen } = rail;
  const own = [...store.items.values()].find(({ name }) => name === chosen);
  const work = view.working.start("Loading the model, computing the attention", () => rail.chooseExample(names[0]));
  try {
    const file = own?.file ?? (await (await fetch(address(chosen))).blob());
    const value = await encode(await model, file, own?.title ?? chosen, Number(part("size").value));
    if (turn !== newest) return URL.revokeObjectURL(value.image);
    if (view.props.value) URL.revokeObjectURL(view.props.value.image);
    view.props.value = value;
    await view.reload();
  } catch (error) {
    const failed = error instanceof Refusal ? error.message : `The model failed: ${error.message ?? error}`;
    if (turn === newest) view.refuse(failed);
  } finally {
    view.working.end(work);
  }
}

for (const [id, entries] of Object.entries(OPTIONS))
  part(id).append(...Object.entries(entries).map(([value, label]) => el("option", { value }, label)));
part("size").value = 224;
part("size").addEventListener("change", show);
for (const name of CONTROLS)
  part(name).addEventListener("input", ({ target }) => view.set({ [name]: target.valueAsNumber || target.value }));
part("export").addEventListener("click", () => view.export());
const take = (event, files) => files?.length && (event.preventDefault(), rail.take([...files]));
window.addEventListener("dragover", (event) => event.preventDefault());
window.addEventListener("drop", (event) => take(event, event.dataTransfer?.files));
window.addEventListener("paste", (event) => take(event, event.clipboardData?.files));
Object.assign(window, { attentionView: view }); // for tests and benchmarks

rail.opened.then(() => rail.chosen || rail.chooseExample(names[0]));
