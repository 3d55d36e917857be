export type TemplateResult = object;
type Value = unknown[] | string | number | boolean | symbol | object | null | undefined | ((event: any) => unknown);
export const html: (strings: TemplateStringsArray, ...values: Value[]) => TemplateResult;
export const svg: (strings: TemplateStringsArray, ...values: Value[]) => TemplateResult;
export const nothing: symbol;
export const render: (value: unknown, container: Element | DocumentFragment) => void;
