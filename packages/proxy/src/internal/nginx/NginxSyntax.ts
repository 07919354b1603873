/**
 * Prints the syntax of an nginx configuration, and embeds data in it safely.
 *
 * nginx has no escape for `$`: it begins a variable inside any quotes. So data is never an argument of the directive
 * that uses it. It becomes the value of a variable that `geo` defines, the only directive that takes its values
 * literally; the directive only names that variable. Only the quote and the backslash must be escaped.
 */

/** One directive, optionally with a block. Arguments are written by this package and may name variables. */
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

/** nginx reads its configuration through a buffer of 4096 bytes, the maximum of a token. 256 characters fit in 1024. */
const pieces = /.{1,256}/gsu

/** Strings that a configuration embeds as data. */
export interface Literals {
  /** Returns a reference to this string, for use inside an argument. */
  readonly reference: (text: string) => string
  /** Returns the definitions of all strings with a reference. */
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

/** Quotes a token unless it is unambiguous without quotes. */
const quote = (text: string): string =>
  /^[A-Za-z0-9_.:/$=()!-]+$/u.test(text) ? text : `"${text.replace(/[\\"]/gu, "\\$&")}"`
