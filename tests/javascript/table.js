import { readFileSync } from "node:fs";

/** Values, limits and choices of the package, which tests/app/test_shared_values.py writes. @type {Record<string, any>} */
export const TABLE = JSON.parse(readFileSync(new URL("values.json", import.meta.url), "utf-8"));
