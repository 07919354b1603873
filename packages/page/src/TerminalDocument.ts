/**
 * A document for xterm.js under a policy without inline styles.
 *
 * The terminal makes style elements and style attributes from text, which such a policy refuses. This document makes
 * the same rules by the browser's interfaces for styles, which the policy allows, because no markup can reach them.
 */

/** Turns an element's text into a style sheet of the document. */
const withSheet = (real: Document): HTMLElement => {
  const element = Document.prototype.createElement.call(real, "span") as HTMLElement
  element.hidden = true
  const sheet = new CSSStyleSheet()
  real.adoptedStyleSheets.push(sheet)
  let text = ""
  Object.defineProperty(element, "textContent", {
    get: () => text,
    set: (rules: string) => {
      text = rules
      sheet.replaceSync(rules)
    }
  })
  element.remove = () => {
    real.adoptedStyleSheets = real.adoptedStyleSheets.filter((one) => one !== sheet)
    Element.prototype.remove.call(element)
  }
  return element
}

/** Sets a style attribute as properties. */
const withStyle = (element: HTMLElement): HTMLElement => {
  element.setAttribute = (name: string, value: string) =>
    name.toLowerCase() === "style"
      ? void (element.style.cssText = value)
      : Element.prototype.setAttribute.call(element, name, value)
  return element
}

/** Makes elements whose styles may be text. */
const makeElement =
  (real: Document) =>
  (tag: string, options?: ElementCreationOptions): HTMLElement =>
    tag === "style"
      ? withSheet(real)
      : withStyle(Document.prototype.createElement.call(real, tag, options) as HTMLElement)

/** Replaces how the document makes elements. Returns what undoes it. */
const replace = (real: Document, createElement: typeof real.createElement): (() => void) => {
  const before = Object.getOwnPropertyDescriptor(real, "createElement")
  Object.defineProperty(real, "createElement", { configurable: true, value: createElement })
  return () =>
    before === undefined
      ? void Reflect.deleteProperty(real, "createElement")
      : void Object.defineProperty(real, "createElement", before)
}

/**
 * Runs `open` while the document itself makes such elements. The scroll bar of the terminal does not use the document
 * that its options name.
 */
export const during = (real: Document, open: () => void): void => {
  const undo = replace(real, makeElement(real) as typeof real.createElement)
  try {
    open()
  } finally {
    undo()
  }
}

/** Terminals in the document. */
let terminals = 0
let release = (): void => {}

/**
 * Lets the styles of spans be text as long as a terminal exists: it makes a span for each color of its output, and does
 * not use the document that its options name for these either. Returns what ends it.
 */
export const hold = (real: Document): (() => void) => {
  if (terminals++ === 0)
    release = replace(real, ((tag: string, options?: ElementCreationOptions) => {
      const element = Document.prototype.createElement.call(real, tag, options) as HTMLElement
      return tag === "span" ? withStyle(element) : element
    }) as typeof real.createElement)
  return () => {
    if (--terminals === 0) release()
  }
}

/** Returns a view of a document in which styles made from text are allowed. */
export const make = (real: Document): Document =>
  new Proxy(real, {
    get: (target, property) => {
      if (property === "createElement") return makeElement(real)
      const value: unknown = Reflect.get(target, property, target)
      return typeof value === "function" ? value.bind(target) : value
    },
    set: (target, property, value) => Reflect.set(target, property, value, target)
  })
