/** The texts of the gateway's threads. `packages/proxy/pack` replaces this module in the published package. */
export const texts:
  | { readonly shard: string; readonly inspection: string; readonly relay: string }
  | undefined = undefined
