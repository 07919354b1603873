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

/** A run of the list that the application shows. */
export const stubRun = {
  runId: "run-in-next",
  status: "failed",
  agentId: "<b>codex</b>",
  model: "gpt-5",
  startedAt: "2026-11-26T04:00:00.000Z",
  endedAt: "2026-11-26T04:01:00.000Z",
  error: { reason: "OomKilled" },
  timings: []
}

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
    ].join("\n"),
  "app/sandbox/layout.js": () =>
    'import "@cogni/sandbox-page/page.css"\n\nexport default ({ children }) => <main className="cs-page">{children}</main>\n',
  "app/sandbox/page.js": () =>
    [
      '"use client"',
      "",
      'import { RunList } from "@cogni/sandbox-page/RunList"',
      'import { SandboxProvider } from "@cogni/sandbox-page/SandboxProvider"',
      'import { QueryClient, QueryClientProvider } from "@tanstack/react-query"',
      "",
      "const client = new QueryClient()",
      'const options = { baseUrl: "/sandbox-api" }',
      "const hrefOfRun = (runId) => `/runs/${runId}`",
      "",
      "export default function Page() {",
      "  return (",
      "    <QueryClientProvider client={client}>",
      "      <SandboxProvider options={options} hrefOfRun={hrefOfRun}>",
      "        <RunList />",
      "      </SandboxProvider>",
      "    </QueryClientProvider>",
      "  )",
      "}",
      ""
    ].join("\n"),
  // In the place of a backend that forwards to the server and adds the token.
  "app/sandbox-api/api/v1/[...path]/route.js": () =>
    [
      'export const dynamic = "force-dynamic"',
      "export const GET = async (request, { params }) => {",
      '  const path = (await params).path.join("/")',
      `  if (path === "runs") return Response.json({ runs: ${JSON.stringify([stubRun])} })`,
      '  if (path === "ai/agents") return Response.json({ agents: [] })',
      '  if (path === "approvals") return Response.json({ approvals: [] })',
      '  return Response.json({ error: { code: "not_found", reason: "NotFound", message: path } }, { status: 404 })',
      "}",
      ""
    ].join("\n")
}

/**
 * Configurations that leave out what the tests do not read: the caches for a next build, of 400 and 80 MB, and the
 * lists of files that a copy of the application would need on another machine. They change nothing in what is built.
 * Turbopack refuses a configuration of webpack.
 */
const configurations = {
  "--turbopack": "export default { experimental: { turbopackFileSystemCacheForBuild: false } }\n",
  "--webpack":
    "export default {\n" +
    "  webpack: (config) => ({ ...config, cache: false }),\n" +
    '  outputFileTracingExcludes: { "next-server": ["**/*"] }\n' +
    "}\n"
} as const

/** Libraries that an application with Next.js depends on. */
export const nextLibraries: ReadonlyArray<string> = ["@tanstack/react-query", "next", "react", "react-dom"]

/** The answers of a running application. */
export interface Asked<A> {
  /** The report of its route. */
  readonly report: string
  /** The page with the components, as the server renders it. */
  readonly html: string
  /** The view of that page in a browser. */
  readonly seen: A
}

/**
 * Builds an application with Next.js in a project, asks its route for the report, and looks at its page. The packages
 * are taken away before it starts, so the build must contain them.
 */
export const askNext = async <A>(
  project: string,
  bundler: keyof typeof configurations,
  look: (url: string) => Promise<A>
): Promise<Asked<A>> => {
  for (const [name, text] of Object.entries(nextFiles)) {
    mkdirSync(dirname(join(project, name)), { recursive: true })
    writeFileSync(join(project, name), text())
  }
  writeFileSync(join(project, "next.config.mjs"), configurations[bundler])
  await PackedPackages.run(project, ...next("build", bundler))
  const packages = ["@cogni", "effect"].map((name) => join(project, "node_modules", name))
  for (const path of packages) renameSync(path, `${path}.away`)
  try {
    return await askServer(project, look)
  } finally {
    for (const path of packages) renameSync(`${path}.away`, path)
  }
}

/** Next.js reports its use to its makers unless this variable forbids it. */
const next = (...argv: ReadonlyArray<string>) =>
  ["env", "NEXT_TELEMETRY_DISABLED=1", process.execPath, "node_modules/next/dist/bin/next", ...argv] as const

/** Starts the built application, and ends it when its routes have answered. */
const askServer = async <A>(project: string, look: (url: string) => Promise<A>): Promise<Asked<A>> => {
  const [file, ...argv] = next("start", "--hostname", "127.0.0.1", "--port", "0")
  const server = spawn(file, argv, {
    cwd: project,
    env: PackedPackages.environment(),
    stdio: ["ignore", "pipe", "pipe"]
  })
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
  const textOf = async (path: string) => {
    const answered = await fetch(`${await url}${path}`, { signal: AbortSignal.timeout(Pace.hangMillis / 2) })
    const text = await answered.text()
    return answered.ok ? text : `${answered.status}\n${output}`
  }
  try {
    return {
      report: await textOf("/api/ask"),
      html: await textOf("/sandbox"),
      seen: await look(`${await url}/sandbox`)
    }
  } finally {
    server.kill()
    await exited
  }
}
