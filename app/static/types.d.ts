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
type Labels = Grid & { values: Uint8Array; seeds?: [number, number][] };
type Pin = Place & { color: string };
