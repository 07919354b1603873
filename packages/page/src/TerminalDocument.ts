/**
 * A document for xterm.js under a policy without inline styles.
 *
 * The terminal makes style elements and style attributes from text, which such a policy refuses. This document makes
 * the same rules by the browser's interfaces for styles, which the policy allows, because no markup can reach them.
 */

/** Turns an element's text into a style sheet of the document. */
const withSheet = (real: Document): HTMLElement => {
  const element = real.createElement("span")
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

/** Returns a view of a document in which styles made from text are allowed. */
export const make = (real: Document): Document =>
  new Proxy(real, {
    get: (target, property) => {
      if (property === "createElement") {
        return (tag: string, options?: ElementCreationOptions) =>
          tag === "style" ? withSheet(real) : withStyle(real.createElement(tag, options))
      }
      const value: unknown = Reflect.get(target, property, target)
      return typeof value === "function" ? value.bind(target) : value
    },
    set: (target, property, value) => Reflect.set(target, property, value, target)
  })
