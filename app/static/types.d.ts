// What the scripts speak of, for `tsc`; no browser fetches this.

type Place = { x: number; y: number }; // shares of width and height, from 0 to 1
type Point = { x: number; y: number }; // in pixels, or in the units of a map
type Patch = { row: number; column: number };
type Grid = { rows: number; columns: number };
type Size = { width: number; height: number };
type View = { scale: number; left: number; top: number }; // how many times larger, and where its corner lies

type Lab = import("./lab.js").Lab;
type Asker = import("./lab.js").Asker;
type Encoding = import("./encoding.js").Encoding;
type Maps = import("./maths/maps.js").Maps;
type Painting = import("./maths/painting.js").Painting;
type Brush = import("./widgets/brush.js").Brush;
type PatchCanvas = import("./widgets/paint.js").PatchCanvas;
type Stage = import("./widgets/stage.js").Stage;

/** An element of the page's own markup, with what any of them may have: who asks knows which one it is. */
type Part = HTMLInputElement & HTMLCanvasElement & HTMLImageElement & HTMLDetailsElement & HTMLAnchorElement;

// ---- what the address holds, and what the server tells

type State = {
  tab: string;
  photo: string; // an example's name, or what the server calls a visitor's own photograph
  name: string; // of a visitor's own photograph; "" for an example
  second: string; // photograph on the right of Match, as `photo`; "": the first one turned
  secondName: string;
  model: string;
  other: string; // model on the right of Compare
  size: number;
  quantity: string;
  block: number; // counted from 1; 0 is the last
  head: string; // "heads", "mean", "max" or a number
  layer: string; // "light", "heat" or "mask"
  mass: number; // per cent
  patch: string; // the active pin as "row,column"; "" is [CLS]
  pins: string; // all of them, as "row,column;row,column"
  method: string; // of Segment
  clip: string;
  clipName: string;
  map: string;
  run: string;
  beside: string; // runs drawn in the same charts, as "name;name"
  step: number; // of the tour, from 1
};
type Question = { photo: string; name: string; model: string; size: number };
type Credit = { title: string; author: string; licence: string; source: string };
type Colors = {
  colormaps: Record<string, string>; // base64 of 256 × 3 bytes
  heads: number[][];
  summary: { mean: number[]; max: number[] };
  diverging: string[];
  pins: string[];
  objects: number[][];
  clipObjects: number[][];
  palette: number[][];
};
type Facts = {
  start: { model: string; size: number; example: string; clip: string; map: string };
  models: { name: string; label: string; remote: boolean }[];
  sizes: number[];
  examples: ({ photo: string; pin: number[] } & Credit)[];
  credits: Credit[]; // of the photographs that clips are made of
  card: string; // what the embedded model is
  clips: { clip: string; title: string }[];
  maps: { name: string; title: string; model: string }[];
  groups: { name: string; color: string }[];
  limits: { uploadBytes: number; clip: string; objects: number; found: number };
  kinds: { photo: string; clip: string };
  colors: Colors;
};
type Told = Size &
  Grid & {
    token: string;
    photo: string;
    model: string;
    size: number;
    heads: number;
    blocks: number;
    prefix: number;
    random: boolean;
    facts: Fact[];
  };
type Fact = [term: string, words: string];
/** What a slow answer says of itself before it is there. */
type Word = { state: string; place?: number; model?: string; done?: number; total?: number };
type Listening = { signal?: AbortSignal; told?: (word: any) => void };

// ---- numbers

/** Of tokens, with the prefix tokens among them. */
type Shape = { heads: number; tokens: number; prefix: number };
/** Queries and keys of every token, prefix tokens first; `number` from 0. */
type Block = Shape & { queries: Float32Array; keys: Float32Array; dim: number; number?: number };
type Features = { features: Float32Array; tokens: number; dim: number; prefix: number };
/** Objects: a byte per cell in reading order, 0 for none. A mask is labels with one object. */
type Labels = Grid & { values: Uint8Array; seeds?: [number, number][] };
type Pin = Place & { color: string };
type Curve = { steps: number[]; values: number[] };
