/**
 * A headless Chromium for the tests of the page.
 *
 * `./dev test` installs Debian's. If it is missing, tests that need it fail with a message; they are never skipped. It
 * has its own profile, and is ended when the scope closes. `Watch` records everything that a page of ours must not do.
 */
import axe from "axe-core"
import { Effect } from "effect"
import { existsSync, mkdirSync } from "node:fs"
import { join } from "node:path"
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core"
import { alarm } from "./HostileTexts.ts"
import * as Pace from "./Pace.ts"

/** The program: the one that `./dev` names, or Debian's. */
const program = () => {
  const found = process.env["COGNI_CHROMIUM"] ?? "/usr/bin/chromium"
  if (!existsSync(found))
    throw new Error(`${found} does not exist. Run ./dev test, which installs Chromium, or set COGNI_CHROMIUM`)
  return found
}

const pictures = process.env["COGNI_SCREENSHOTS"]

/** Keeps a picture of the page, if the environment names a directory for them. */
export const picture = (page: Page, name: string): Effect.Effect<void> =>
  Effect.promise(async () => {
    if (pictures === undefined) return
    mkdirSync(pictures, { recursive: true })
    await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true })
  })

/** Starts a browser. It resolves no name, so that a page can reach nothing but this machine. */
export const acquire = Effect.acquireRelease(
  Effect.promise(() =>
    chromium.launch({
      executablePath: program(),
      timeout: Pace.hangMillis,
      // As root, Chromium cannot make its own sandbox. It loads only our own page.
      chromiumSandbox: process.getuid?.() !== 0,
      args: ["--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]
    })
  ),
  (browser) => Effect.promise(() => browser.close())
)

/** Records acts that a page of ours never does. */
export interface Watch {
  /** Dialogs, scripts of a payload, other windows, requests to other hosts, violations of the policy, errors. */
  readonly offences: Array<string>
}

export interface Tab {
  readonly page: Page
  readonly context: BrowserContext
  readonly watch: Watch
}

export interface TabOptions {
  readonly url: string
  readonly width?: number
  readonly height?: number
  readonly colors?: "light" | "dark"
}

/** Reports violations of the policy. Scripts for the browser are texts, because a test has no types of a document. */
const reporting = `document.addEventListener("securitypolicyviolation", (event) =>
  ${alarm}("policy " + event.violatedDirective + " " + event.blockedURI + " " + event.sample))`

/**
 * Runs axe, and returns one line for each violation. React Aria says in a region of its own what has changed, and
 * leaves it there for seconds, when the element that it names may be gone.
 */
const audit = `axe.run({ exclude: ["[data-live-announcer]"] }, {
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
  resultTypes: ["violations"]
}).then(({ violations }) => violations.map(({ id, nodes }) => id + ": " + nodes.slice(0, 3).map(
  ({ failureSummary, html }) => html.slice(0, 200) + " " + failureSummary.replaceAll("\\n", " ")).join(" | ")))`

/** Opens a tab, in a profile of its own. */
export const tab = (browser: Browser, { colors = "light", height = 900, url, width = 1360 }: TabOptions) =>
  Effect.acquireRelease(
    Effect.promise(async (): Promise<Tab> => {
      const context = await browser.newContext({
        viewport: { width, height },
        colorScheme: colors,
        reducedMotion: "reduce"
      })
      context.setDefaultTimeout(Pace.hangMillis / 2)
      const offences: Array<string> = []
      const watch: Watch = { offences }
      await context.exposeFunction(alarm, (what: unknown) => void offences.push(`ran: ${String(what)}`))
      await context.addInitScript({ content: reporting })
      const page = await context.newPage()
      context.on("page", (other) => void offences.push(`opened ${other.url()}`))
      page.on("dialog", (dialog) => {
        offences.push(`dialog ${dialog.message()}`)
        void dialog.dismiss()
      })
      page.on("request", (request) => {
        if (!request.url().startsWith(`${url}/`)) offences.push(`requested ${request.url()}`)
      })
      page.on("pageerror", (error) => offences.push(`error ${error.message}`))
      page.on("console", (message) => {
        const text = message.text()
        // A refused request is an answer that tests cause on purpose.
        if (message.type() === "error" && !text.startsWith("Failed to load resource"))
          offences.push(`console ${text}`)
      })
      return { page, context, watch }
    }),
    ({ context }) => Effect.promise(() => context.close())
  )

/** Checks the page with axe, by the rules of WCAG 2.2 AA. Returns one line for each violation. */
export const violations = (page: Page): Effect.Effect<ReadonlyArray<string>> =>
  Effect.promise(async () => {
    // Evaluated by the debugger, which no policy of the page restricts.
    await page.evaluate(axe.source)
    const found = await page.evaluate(audit)
    return found as ReadonlyArray<string>
  })
