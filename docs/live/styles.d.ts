// A style sheet as its text: how esbuild bundles it.
declare module "*.css" {
  const text: string;
  export default text;
}
