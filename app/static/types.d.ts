// Types of the scripts, for `tsc`; no browser fetches this.

type Place = { x: number; y: number }; // shares of width and height, from 0 to 1
type Point = { x: number; y: number }; // pixels, or units of a map
type Patch = { row: number; column: number };
type Grid = { rows: number; columns: number };
type Size = { width: number; height: number };

type Encoding = import("./views/encoding.js").Encoding;

/** An HTML element with the properties of those that the views use. */
type Part = HTMLInputElement & HTMLCanvasElement & HTMLImageElement & HTMLDetailsElement & HTMLAnchorElement;

/** Arguments of the constructor of a view, see app/views.py. */
type Mounted = {
  element: HTMLElement;
  props: Record<string, any>;
  watch: (names: string | string[], callback: () => void) => void;
  emit: (event: string, data?: any) => void;
  id?: number;
  server?: Record<string, (data: any) => Promise<any>>; // the functions that the component gives
};
/** The value of an attention view. */
type EncodingValue = Size &
  Grid & {
    token: string;
    heads: number;
    blocks: number;
    prefix: number; // [CLS] and registers
    image: string;
    arrays: string | Record<string, string | Float32Array>; // an address; or base64 or numbers by KIND/BLOCK
    name?: string;
    source?: string; // NAME of an example, or NAME/TITLE
    model?: string;
    size?: number;
    random?: boolean;
    pin?: [number, number];
  };

type Shape = { heads: number; tokens: number; prefix: number };
/** Queries and keys of every token, prefix tokens first; `number` from 0. */
type Block = Shape & { queries: Float32Array; keys: Float32Array; dim: number; number?: number };
type Features = { features: Float32Array; tokens: number; dim: number; prefix: number };
/** Objects: a byte per cell in reading order, 0 for none. A mask is labels with one object. */
type Labels = Grid & { values: Uint8Array };
type Pin = Place & { color: string };

/** A quantity of maths/quantities.js. */
type Quantity = {
  mode: "attention" | "similarity" | "overview"; // of the page, which offers variants of three
  says: string; // what colors mean, with SUBJECT and BLOCK to be filled in
  arrays: "blocks" | "tokens" | "norms" | "rollout" | "key-pca"; // input of `maps`, by kind in their address
  maps?: (arrays: any, token: number) => Float32Array[]; // of one token
  signed?: boolean; // values are no shares
  needsPatch?: boolean; // [CLS] is not the default
  heads?: boolean; // one map per head
  colors?: boolean; // `arrays` are finished colors of all patches
  fixed?: boolean; // the map does not depend on the token
  colormap?: string; // default
};

/** What a stage tells its view. */
type StageEvents = {
  point?: (place: Place) => void; // by the pointer or the arrow keys; null: the pointer has left
  press?: (place: Place, alt: boolean) => void; // by a click, a tap or Enter
  retract?: () => void; // the last press was the first half of a double click
  stroke?: (from: Place, to: Place) => void; // the first has twice the same place
  lift?: () => void; // end of a stroke
  key?: (event: KeyboardEvent) => boolean; // returns whether the key has a meaning
};

type Gestures = {
  point: (event: PointerEvent) => void; // no button is pressed, or a drag does not pan; null: the pointer has left
  press: (event: MouseEvent) => void; // a click that was no drag
  pan: (right: number, down: number) => void;
  zoom: (factor: number, at: { clientX: number; clientY: number }) => boolean; // returns whether anything changed
  pans: (two: boolean) => boolean; // a drag pans, or zooms with two pointers
};

/** Label, end of the file's name, and a function that returns a file, or null if the server writes it. */
type Format = [string, string, (options: Record<string, any>, say: (words: string) => void) => Promise<Blob> | Blob];
/** Part of the export dialog; options: name to a label, for a checkbox, or to a list of [value, label]. */
type Section = { title: string; options: Record<string, string | [string, string][]>; formats: Format[] };
/** What a picture has over its images; scale: values at the ends of the color bar, and its colors; side: in pixels. */
type Parts = { outline?: boolean; pins?: boolean; scale?: { ends: string[]; stops: string[] }; side?: number };
type Box = { x: number; y: number; width: number; height: number };

/** An own file. name: of the server's copy, if it has one, as NAME/TITLE. thumbnail: a small JPEG, if any. */
type Own = { id: string; kind: "image" | "clip"; title: string; file: Blob; thumbnail?: Blob; name: string };
