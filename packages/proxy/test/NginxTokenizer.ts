/**
 * Independent parser of nginx configurations. It implements nginx's rules for tokens (`ngx_conf_read_token`) from their
 * description, so that the output of `NginxConfig` is not checked by the code that printed it.
 */

export interface Node {
  readonly words: ReadonlyArray<string>
  readonly block: ReadonlyArray<Node> | undefined
}

const escapes: Record<string, string> = { '"': '"', "'": "'", "\\": "\\", t: "\t", r: "\r", n: "\n" }

export const parse = (text: string): ReadonlyArray<Node> => {
  let at = 0
  const unescape = (raw: string) =>
    raw.replace(/\\([\s\S])/gu, (whole, next: string) => escapes[next] ?? whole)

  const nodes = (depth: number): ReadonlyArray<Node> => {
    const found: Array<Node> = []
    let words: Array<string> = []
    for (;;) {
      while (/[ \t\r\n]/u.test(text[at] ?? "")) at++
      const next = text[at]
      if (next === undefined) {
        if (depth > 0 || words.length > 0) throw new Error("unexpected end")
        return found
      }
      if (next === ";") {
        at++
        if (words.length === 0) throw new Error("unexpected ;")
        found.push({ words, block: undefined })
        words = []
      } else if (next === "{") {
        at++
        if (words.length === 0) throw new Error("unexpected {")
        found.push({ words, block: nodes(depth + 1) })
        words = []
      } else if (next === "}") {
        at++
        if (depth === 0 || words.length > 0) throw new Error("unexpected }")
        return found
      } else if (next === "#") {
        while (at < text.length && text[at] !== "\n") at++
      } else if (next === '"' || next === "'") {
        const start = ++at
        while (text[at] !== next) {
          if (at >= text.length) throw new Error("unclosed quote")
          at += text[at] === "\\" ? 2 : 1
        }
        words.push(unescape(text.slice(start, at)))
        at++
        if (!/[\s;{)]/u.test(text[at] ?? "")) throw new Error(`unexpected "${text[at]}" after a quote`)
      } else {
        const start = at
        while (at < text.length && !/[\s;{]/u.test(text[at]!)) {
          if (text[at] === "\\") at++
          else if (text[at] === "$" && text[at + 1] === "{") at++
          at++
        }
        words.push(unescape(text.slice(start, at)))
      }
    }
  }
  return nodes(0)
}

/** Returns the children with this name. */
export const children = (node: Node, name: string): ReadonlyArray<Node> =>
  (node.block ?? []).filter(({ words }) => words[0] === name)

/** Returns the value of a template at run time. A variable that `geo` does not define becomes `<name>`. */
export const evaluate = (template: string, http: Node): string => {
  const literals = new Map(
    children(http, "geo").map((geo) => [
      geo.words[1]!.slice(1),
      geo.block!.find(({ words }) => words[0] === "default")!.words[1]!
    ])
  )
  return template.replace(
    /\$(?:\{([A-Za-z0-9_]*)\}|([A-Za-z0-9_]*))/gu,
    (_, braced?: string, plain?: string) => {
      const name = braced ?? plain ?? ""
      return literals.get(name) ?? `<${name}>`
    }
  )
}
