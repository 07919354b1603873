/** The run database that the environment names, and the secrecy of its password. */
import { assert, describe, it } from "@effect/vitest"
import * as Settings from "../src/Settings.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as DatabaseAddress from "@cogni/sandbox-sql/DatabaseAddress"
import { Effect, Layer, Result } from "effect"
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { inspect } from "node:util"

const password = "planted-7f3c"
const url = `postgres://cogni:${password}@db.example:5432/runs`

const read = (environment: Record<string, string>) =>
  Effect.provide(
    Settings.Settings,
    Layer.provide(Settings.layer({ COGNI_STATE_DIR: "/state", ...environment }), NodeServices.layer)
  )

const named = (settings: Settings.Settings["Service"]) =>
  Result.match(settings.database, {
    onFailure: ({ message }) => message,
    onSuccess: ({ address, variable }) => `${DatabaseAddress.nameOf(address)} (${variable ?? "nothing"})`
  })

const file = (content: string, mode = 0o600) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-url-"))),
      (directory) => Effect.sync(() => rmSync(directory, { recursive: true }))
    ),
    (directory) => {
      const path = join(directory, "url")
      writeFileSync(path, content)
      chmodSync(path, mode)
      return path
    }
  )

describe("DatabaseSettings", () => {
  it("a URL is removed from the environment, because it may contain a password", () => {
    const environment: Record<string, string | undefined> = { COGNI_DATABASE_URL: url, PATH: "/bin" }
    assert.strictEqual(Settings.takeEnvironment(environment)["COGNI_DATABASE_URL"], url)
    assert.deepStrictEqual(environment, { PATH: "/bin" })
  })

  it.effect("the default is a file beside the records; a variable or a file overrides it", () =>
    Effect.gen(function* () {
      assert.strictEqual(named(yield* read({})), "/state/cogni.db (nothing)")
      assert.strictEqual(named(yield* read({ COGNI_DATABASE_URL: "" })), "/state/cogni.db (nothing)")
      assert.strictEqual(
        named(yield* read({ COGNI_DATABASE_URL: "sqlite:///elsewhere/x.db" })),
        "/elsewhere/x.db (COGNI_DATABASE_URL)"
      )
      assert.strictEqual(
        named(yield* read({ COGNI_DATABASE_URL: url })),
        "postgres://db.example:5432/runs (COGNI_DATABASE_URL)"
      )
      assert.strictEqual(
        named(yield* read({ COGNI_DATABASE_URL_FILE: yield* file(`${url}\n`) })),
        "postgres://db.example:5432/runs (COGNI_DATABASE_URL_FILE)"
      )
    })
  )

  it.effect("an invalid setting is reported with its variable and a remedy", () =>
    Effect.gen(function* () {
      assert.include(
        named(yield* read({ COGNI_DATABASE_URL: `mysql://u:${password}@h/d` })),
        "COGNI_DATABASE_URL: the database URL is invalid. Write sqlite:///absolute/path"
      )
      const path = yield* file(url, 0o640)
      assert.include(named(yield* read({ COGNI_DATABASE_URL_FILE: path })), `chmod 600 ${path}`)
      assert.include(
        named(yield* read({ COGNI_DATABASE_URL: url, COGNI_DATABASE_URL_FILE: path })),
        "both set. Unset COGNI_DATABASE_URL"
      )
    })
  )

  it.effect("the password is in nothing that can be printed", () =>
    Effect.gen(function* () {
      const path = yield* file(url)
      for (const environment of [
        { COGNI_DATABASE_URL: url },
        { COGNI_DATABASE_URL_FILE: path },
        { COGNI_DATABASE_URL: url, COGNI_DATABASE_URL_FILE: path },
        { COGNI_DATABASE_URL: `mysql://u:${password}@h/d` }
      ]) {
        const settings = yield* read(environment)
        assert.notInclude(inspect(settings, { depth: 9, showHidden: true }), password)
        assert.notInclude(JSON.stringify(settings), password)
      }
    })
  )
})
