/**
 * Replaces commands of the installed program in a remedy, if the user has a checkout.
 *
 * There, `./dev` builds the images and also installs what is missing. Pure.
 */

/** Commands of the installed program, and those of a checkout. */
const commands: ReadonlyArray<readonly [installed: string, checkout: string]> = [
  ["cogni-sandbox images build", "./dev images"],
  ["(systemctl start docker)", "(./dev setup, or systemctl start docker)"],
  ["(systemctl restart docker)", "(./dev setup, or systemctl restart docker)"]
]

/** The published program is JavaScript. TypeScript is only executed in a checkout. */
export const isCheckout: boolean = import.meta.url.endsWith(".ts")

export const inWordsOf = (user: { readonly isCheckout: boolean }, message: string): string =>
  (user.isCheckout ? commands : []).reduce((text, [theirs, ours]) => text.replaceAll(theirs, ours), message)

/** A message in the words of the user who runs this program. */
export const forUser = (message: string): string => inWordsOf({ isCheckout }, message)
