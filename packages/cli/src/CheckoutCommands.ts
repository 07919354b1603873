/**
 * Replaces commands in a remedy of the libraries by those that the user of the command has.
 *
 * In a checkout, `./dev` builds the images and also installs what is missing. Pure.
 */

/** Commands in remedies of the libraries, and what the installed program and a checkout have instead. */
const commands: ReadonlyArray<readonly [library: string, installed: string, checkout: string]> = [
  ["npx @cogni/sandbox-images", "cogni-sandbox images build", "./dev images"],
  ["(systemctl start docker)", "(systemctl start docker)", "(./dev setup, or systemctl start docker)"],
  ["(systemctl restart docker)", "(systemctl restart docker)", "(./dev setup, or systemctl restart docker)"]
]

/** The published program is JavaScript. TypeScript is only executed in a checkout. */
export const isCheckout: boolean = import.meta.url.endsWith(".ts")

export const inWordsOf = (user: { readonly isCheckout: boolean }, message: string): string =>
  commands.reduce(
    (text, [library, installed, checkout]) =>
      text.replaceAll(library, user.isCheckout ? checkout : installed),
    message
  )

/** A message in the words of the user who runs this program. */
export const forUser = (message: string): string => inWordsOf({ isCheckout }, message)
