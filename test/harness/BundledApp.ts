/** Applications outside this repository that send conversations through a gateway: see `BundledConversation`. */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import { stripTypeScriptTypes } from "node:module"
import { dirname, join } from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import * as PackedPackages from "./PackedPackages.ts"
import * as Pace from "./Pace.ts"

/** Path of the conversation, relative to the root. A project has it as `conversation.ts` beside its program. */
export const conversationPath = "test/harness/BundledConversation.ts"

/** Prints the conversation's report. */
export const program =
  'import { converse } from "./conversation.ts"\n\nvoid converse().then((report) => process.stdout.write(report))\n'

/** The report of a conversation that arrived whole. */
export const answer = "1000 200 true\n300000 200 true\n2000000 200 true\nfunction\n"

const conversation = fileURLToPath(new URL("BundledConversation.ts", import.meta.url))

/** Next.js needs TypeScript and types of React for a project with TypeScript, so the application has none. */
const nextFiles: Readonly<Record<string, () => string>> = {
  "app/layout.js": () =>
    'export default function Layout({ children }) {\n  return <html lang="en"><body>{children}</body></html>\n}\n',
  "app/page.js": () => "export default function Page() {\n  return <p>home</p>\n}\n",
  "app/api/ask/conversation.js": () => stripTypeScriptTypes(readFileSync(conversation, "utf8")),
  "app/api/ask/route.js": () =>
    [
      'import { converse } from "./conversation.js"',
      "",
      'export const dynamic = "force-dynamic"',
      "export const GET = async () => new Response(await converse())",
      ""
    ].join("\n")
}

/** Libraries that an application with Next.js depends on. */
export const nextLibraries: ReadonlyArray<string> = ["next", "react", "react-dom"]

/**
 * Builds an application with Next.js in a project, with default settings, and asks its route for the report. The
 * packages are taken away before it starts, so the build must contain them.
 */
export const askNext = async (project: string, bundler: "--turbopack" | "--webpack"): Promise<string> => {
  for (const [name, text] of Object.entries(nextFiles)) {
    mkdirSync(dirname(join(project, name)), { recursive: true })
    writeFileSync(join(project, name), text())
  }
  await PackedPackages.run(project, ...next("build", bundler))
  const packages = ["@cogni", "effect"].map((name) => join(project, "node_modules", name))
  for (const path of packages) renameSync(path, `${path}.away`)
  try {
    return await askServer(project)
  } finally {
    for (const path of packages) renameSync(`${path}.away`, path)
  }
}

/** Next.js reports its use to its makers unless this variable forbids it. */
const next = (...argv: ReadonlyArray<string>) =>
  ["env", "NEXT_TELEMETRY_DISABLED=1", process.execPath, "node_modules/next/dist/bin/next", ...argv] as const

/** Starts the built application, and ends it when its route has answered. */
const askServer = async (project: string): Promise<string> => {
  const [file, ...argv] = next("start", "--hostname", "127.0.0.1", "--port", "0")
  const server = spawn(file, argv, { cwd: project, stdio: ["ignore", "pipe", "pipe"] })
  let output = ""
  server.stderr.on("data", (piece: Buffer) => (output += piece.toString()))
  const exited = once(server, "exit")
  const url = new Promise<string>((resolve, reject) => {
    createInterface({ input: server.stdout }).on("line", (line) => {
      output += `${line}\n`
      const found = /http:\/\/127\.0\.0\.1:\d+/u.exec(line)
      if (found !== null) resolve(found[0])
    })
    void exited.then(() => reject(new Error(`next start ended early\n${output}`)))
  })
  try {
    const answered = await fetch(`${await url}/api/ask`, { signal: AbortSignal.timeout(Pace.hangMillis / 2) })
    const text = await answered.text()
    return answered.ok ? text : `${answered.status}\n${output}`
  } finally {
    server.kill()
    await exited
  }
}
