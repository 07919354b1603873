/**
 * Runs the packages as a user of npm has them: in an empty project with Node and Docker, without a checkout.
 *
 * The images of this checkout are built, so only the changed copy of one is built here, from cached layers.
 */
import { label } from "@cogni/sandbox-core/ResourceLabels"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFile } from "node:child_process"
import {
  appendFileSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync
} from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"
import * as Browser from "../harness/Browser.ts"
import * as BundledApp from "../harness/BundledApp.ts"
import * as OldestNode from "../harness/OldestNode.ts"
import * as PackedPackages from "../harness/PackedPackages.ts"
import * as Pace from "../harness/Pace.ts"

const { run } = PackedPackages

let packed: PackedPackages.Packed
let stateDirectory: string

interface Ended {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** Runs the installed command, or another program of the project, without the variables of the tests. */
const start = (file: string, argv: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) =>
  new Promise<Ended>((resolve) => {
    execFile(
      file,
      [...argv],
      {
        cwd: packed.project,
        timeout: Pace.hangMillis / 2,
        env: {
          PATH: `${join(process.execPath, "..")}:/usr/local/bin:/usr/bin:/bin`,
          HOME: homedir(),
          COGNI_STATE_DIR: stateDirectory,
          ...env
        }
      },
      (error, stdout, stderr) => resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr })
    )
  })

const cli = (...argv: ReadonlyArray<string>) =>
  start(join(packed.project, "node_modules/.bin/cogni-sandbox"), argv)

const images = () => join(packed.project, "node_modules/@cogni/sandbox-images")

const tagOf = async (name: string) =>
  (await run(packed.project, "bash", join(images(), "build"), "--print", name)).trim()

/** The sample of the guide for a Node without `await using`. */
const helloOnOldestNode = (): string => {
  const guide = readFileSync(new URL("../../docs/guides/promises.md", import.meta.url), "utf8")
  const [, sample] = /^## On Node 22$[\s\S]*?^```ts\n([\s\S]*?)^```$/mu.exec(guide) ?? []
  return sample ?? assert.fail("the guide has no such sample")
}

/** Replaces a file of the installed package. Its inode may belong to the store of the package manager. */
const changed = (path: string, change: (copy: string) => void) => {
  copyFileSync(path, `${path}.new`)
  change(`${path}.new`)
  renameSync(`${path}.new`, path)
}

const idOf = async (image: string) =>
  (await run(packed.project, "docker", "image", "inspect", "--format", "{{.Id}}", image)).trim()

describe("installed from npm", () => {
  beforeAll(async () => {
    const example = readFileSync(new URL("../../examples/sealed-run-on-docker.ts", import.meta.url), "utf8")
    packed = await PackedPackages.install(
      { "sealed.ts": example, "hello.ts": helloOnOldestNode() },
      BundledApp.nextLibraries
    )
    stateDirectory = join(packed.project, "state")
    mkdirSync(stateDirectory, { mode: 0o700 })
  }, PackedPackages.installMillisMax)

  afterAll(async () => {
    const runs = readdirSync(join(stateDirectory, "runs"))
    const left = await Promise.all(
      runs.map((id) =>
        run(packed.project, "docker", "ps", "--all", "--quiet", "--filter", `label=${label.run}=${id}`)
      )
    )
    packed.remove()
    assert.isAbove(runs.length, 1)
    assert.strictEqual(left.join(""), "", "left behind")
  })

  it("the command lists the images of its version, which this engine has", async () => {
    const { code, stderr, stdout } = await cli("images", "list", "--output", "json")
    assert.strictEqual(code, 0, stderr)
    const listed = JSON.parse(stdout) as ReadonlyArray<{ name: string; image: string; bytes?: number }>
    const runtime = listed.find(({ name }) => name === "runtime")!
    assert.strictEqual(runtime.image, await tagOf("runtime"))
    assert.isAbove(runtime.bytes ?? 0, 1_000_000)
  })

  it("the command runs a program in a sealed container, in the image of its version", async () => {
    const { code, stderr, stdout } = await cli(
      "run",
      "--no-model",
      "--",
      "sh",
      "-c",
      "echo hello; ls /sys/class/net"
    )
    assert.strictEqual(code, 0, stderr)
    assert.strictEqual(stdout, "hello\nlo\n")
  })

  it("the libraries run a program in a sealed container", async () => {
    const { code, stderr, stdout } = await start(process.execPath, ["sealed.ts"], {
      COGNI_RUNTIME_IMAGE: await tagOf("runtime")
    })
    assert.strictEqual(code, 0, stderr)
    assert.match(stdout, /uid=1000[\s\S]*done\n[\s\S]*isolation confirmed by sandbox, engine/u)
  })

  it("the libraries run a program in a sealed container on the oldest supported line of Node", async () => {
    const { code, stderr, stdout } = await start(OldestNode.path(), ["sealed.ts"], {
      COGNI_RUNTIME_IMAGE: await tagOf("runtime")
    })
    assert.strictEqual(code, 0, stderr)
    assert.match(stdout, /isolation confirmed by sandbox, engine/u)
  })

  it("the Promise API runs a command on the oldest supported line of Node, as its guide shows", async () => {
    // Its records are below the home directory.
    const home = { HOME: packed.project }
    const { code, stderr, stdout } = await start(OldestNode.path(), ["hello.ts"], home)
    assert.strictEqual(code, 0, stderr)
    assert.match(stdout, /^hello$/mu)
  })

  for (const bundler of ["--turbopack", "--webpack"] as const) {
    it.effect(
      `an application with Next.js, built with ${bundler}, has a gateway in a route and runs in a page`,
      () =>
        Effect.gen(function* () {
          const browser = yield* Browser.acquire
          const look = async (url: string) => {
            const page = await browser.newPage()
            const problems: Array<string> = []
            page.on("pageerror", ({ message }) => problems.push(message))
            page.on("console", (message) => {
              // The application has no icon, for which every browser asks.
              if (message.type() === "error" && !message.location().url.endsWith("/favicon.ico"))
                problems.push(`${message.text()} ${message.location().url}`)
            })
            await page.goto(url)
            const row = page.getByRole("row", { name: BundledApp.stubRun.runId })
            await row.waitFor()
            const href = await row.getByRole("link").getAttribute("href")
            const surface = await page.evaluate<string>(
              'getComputedStyle(document.querySelector(".cs-table")).borderCollapse'
            )
            return { problems, href, surface, text: await row.innerText() }
          }
          const { html, report, seen } = yield* Effect.promise(() =>
            BundledApp.askNext(packed.project, bundler, look)
          )
          assert.strictEqual(report, BundledApp.answer)
          assert.include(html, "Loading runs")
          assert.strictEqual(seen.href, `/runs/${BundledApp.stubRun.runId}`)
          for (const shown of [BundledApp.stubRun.agentId, "OomKilled", "gpt-5"])
            assert.include(seen.text, shown)
          // The style of the package is there too.
          assert.strictEqual(seen.surface, "collapse")
          assert.deepStrictEqual(seen.problems, [])
        })
    )
  }

  it("the command names the command that builds a missing image", async () => {
    const { code, stderr } = await start(
      join(packed.project, "node_modules/.bin/cogni-sandbox"),
      ["run", "--no-model", "--", "true"],
      { COGNI_RUNTIME_IMAGE: "cogni-sandbox/runtime:none" }
    )
    assert.strictEqual(code, 69)
    assert.include(stderr, "Build it: cogni-sandbox images build --only runtime")
  })

  it("the demo announces and builds the image that is missing, and runs it", async () => {
    const latest = await idOf("cogni-sandbox/runtime:latest")
    const before = await tagOf("runtime")
    changed(join(images(), "runtime/cogni-stdin"), (copy) => appendFileSync(copy, `# ${process.pid}\n`))
    const tag = await tagOf("runtime")
    assert.notStrictEqual(tag, before)
    changed(join(images(), "tags"), (copy) =>
      writeFileSync(copy, readFileSync(copy, "utf8").replaceAll(before, tag))
    )
    try {
      const { code, stderr, stdout } = await cli("demo")
      assert.strictEqual(code, 0, stderr)
      assert.match(
        stderr,
        /no image for runtime yet: building .* one to three minutes[\s\S]*✓ image runtime/u
      )
      assert.include(stdout, "interfaces lo; routes none")
      assert.match(await run(packed.project, "docker", "image", "ls", "--quiet", tag), /\S/u)
      const again = await cli("images", "build", "--only", "runtime")
      assert.deepStrictEqual(again, { code: 0, stdout: "nothing to build\n", stderr: "" })
    } finally {
      await run(packed.project, "docker", "tag", latest, "cogni-sandbox/runtime:latest")
      // An image that was never built must not hide why.
      if ((await run(packed.project, "docker", "image", "ls", "--quiet", tag)) !== "")
        await run(packed.project, "docker", "image", "rm", tag)
    }
  })
})
