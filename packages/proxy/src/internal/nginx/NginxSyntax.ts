/**
 * The grammar of an nginx configuration, and how a text that is data gets into one.
 *
 * nginx has no escape for `$`: inside any quotes it begins a variable. So data is never an argument of the directive
 * that uses it. It becomes the value of a variable, defined by `geo`, the one directive that takes its values as they
 * are; the directive only names that variable. What is left to escape are the quote and the backslash.
 */

/** One directive, perhaps with a block. Arguments are code of this package, and may name variables. */
export interface Directive {
  readonly name: string
  readonly args: ReadonlyArray<string>
  readonly block?: ReadonlyArray<Directive> | undefined
}

export const directive = (name: string, ...args: ReadonlyArray<string>): Directive => ({ name, args })

export const block = (
  name: string,
  args: ReadonlyArray<string>,
  directives: ReadonlyArray<Directive>
): Directive => ({ name, args, block: directives })

/** nginx reads its configuration through a buffer of 4096 bytes, and no token may be larger: 256 characters are 1024 bytes at most. */
const pieces = /.{1,256}/gsu

/** Texts that a configuration holds as data. */
export interface Literals {
  /** A name for this text, to be used inside an argument. */
  readonly reference: (text: string) => string
  /** The definitions of all that was referred to. */
  readonly directives: () => ReadonlyArray<Directive>
}

export const makeLiterals = (): Literals => {
  const names = new Map<string, string>()
  const nameOf = (piece: string) => {
    const name = names.get(piece) ?? `literal_${names.size + 1}`
    names.set(piece, name)
    return name
  }
  return {
    reference: (text) => (text.match(pieces) ?? [""]).map((piece) => `\${${nameOf(piece)}}`).join(""),
    directives: () =>
      [...names].map(([piece, name]) => block("geo", [`$${name}`], [directive("default", piece)]))
  }
}

export const print = (directives: ReadonlyArray<Directive>, indent = ""): string =>
  directives
    .map(({ args, block: inner, name }) => {
      const head = `${indent}${[name, ...args].map(quote).join(" ")}`
      return inner === undefined ? `${head};\n` : `${head} {\n${print(inner, `${indent}  `)}${indent}}\n`
    })
    .join("")

/** Bare where that cannot mean anything else. */
const quote = (text: string): string =>
  /^[A-Za-z0-9_.:/$=()!-]+$/u.test(text) ? text : `"${text.replace(/[\\"]/gu, "\\$&")}"`
