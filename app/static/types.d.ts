// Types of the scripts, for `tsc`; no browser fetches this.

type Place = { x: number; y: number }; // shares of width and height, from 0 to 1
type Point = { x: number; y: number }; // in pixels, or in the units of a map
type Patch = { row: number; column: number };
type Grid = { rows: number; columns: number };
type Size = { width: number; height: number };
type View = { scale: number; left: number; top: number }; // how many times larger, and where its corner lies

type Encoding = import("./views/encoding.js").Encoding;
type Maps = import("./maths/maps.js").Maps;
type Painting = import("./maths/painting.js").Painting;
type PatchCanvas = import("./views/paint.js").PatchCanvas;
type Stage = import("./views/stage.js").Stage;

/** An element of a view's own markup, with what any of them may have. */
type Part = HTMLInputElement & HTMLCanvasElement & HTMLImageElement & HTMLDetailsElement & HTMLAnchorElement;

// ---- views

/** What a view is constructed with, see app/views.py. */
type Mounted = {
  element: HTMLElement;
  props: Record<string, any>;
  watch: (names: string | string[], callback: () => void) => void;
  emit: (event: string, data?: any) => void;
  server?: Server;
};
type Server = Record<string, (question: any) => Promise<any>> | null;
/** The value of an attention view. */
type Told = Size &
  Grid & {
    token: string;
    heads: number;
    blocks: number;
    prefix: number; // [CLS] and registers
    picture: string;
    arrays: string | Record<string, string> | null; // an address, base64 by KIND/BLOCK, or null: the server function
    name?: string;
    photo?: string;
    model?: string;
    size?: number;
    random?: boolean;
    pin?: [number, number] | null;
    facts?: [string, string][];
  };
type Colors = {
  colormaps: Record<string, string>; // base64 of 256 × 3 bytes
  heads: number[][];
  summary: { mean: number[]; max: number[] };
  diverging: string[];
  pins: string[];
  objects: number[][];
  clipObjects: number[][];
  palette: number[][];
  groups: Record<string, string>;
};

// ---- numbers

/** Of tokens, with the prefix tokens among them. */
type Shape = { heads: number; tokens: number; prefix: number };
/** Queries and keys of every token, prefix tokens first; `number` from 0. */
type Block = Shape & { queries: Float32Array; keys: Float32Array; dim: number; number?: number };
type Features = { features: Float32Array; tokens: number; dim: number; prefix: number };
/** Objects: a byte per cell in reading order, 0 for none. A mask is labels with one object. */
type Labels = Grid & { values: Uint8Array; seeds?: [number, number][] };
type Pin = Place & { color: string };
