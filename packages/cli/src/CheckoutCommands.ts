/**
 * Names commands as the user of this program has them: replaces those in a remedy of the libraries, and quotes others.
 *
 * In a checkout, `./dev` builds the images and also installs what is missing. Pure.
 */
import * as ShellWord from "@cogni/sandbox-host-files/ShellWord"

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

/** Commands that `./dev` also has itself. */
const ofDev: ReadonlySet<string> = new Set(["demo", "doctor", "run"])

/** A command of this program, as the user types it. */
export const commandOf = (
  user: { readonly isCheckout: boolean },
  [name, ...rest]: readonly [name: string, ...rest: ReadonlyArray<string>]
): string => {
  const program = !user.isCheckout ? "cogni-sandbox" : ofDev.has(name) ? "./dev" : "./dev cli"
  return [program, ...[name, ...rest].map(ShellWord.quoted)].join(" ")
}

/** A message in the words of the user who runs this program. */
export const forUser = (message: string): string => inWordsOf({ isCheckout }, message)
