/** The client over sandboxes in memory, the SDK's loop with it, and the same promises over the SDK's own client. */
import { afterAll, beforeAll, describe, it } from "@effect/vitest"
import { createHost } from "@cogni/sandbox-promise"
import { InMemoryRemoteSnapshotStore } from "@openai/agents-core/sandbox"
import { UnixLocalSandboxClient } from "@openai/agents-core/sandbox/local"
import { Effect } from "effect"
import { existsSync } from "node:fs"
import { sandboxClient } from "../src/index.ts"
import { ownSession, task } from "./AgentLoop.ts"
import { program } from "./MemoryShell.ts"
import { lifePromises, promises, type Subject, type WholeSession } from "./SessionSuite.ts"

const host = createHost({ inMemory: program })
afterAll(() => host.close())

const keepsPromises = (subject: Subject): void => {
  let session: WholeSession
  beforeAll(async () => {
    session = (await subject.client({ type: "noop" }).create({})) as WholeSession
  })
  afterAll(() => session.close())

  for (const [title, promise] of Object.entries(promises))
    it.effect(title, () => Effect.promise(() => promise(session, subject)))

  for (const [title, promise] of Object.entries(lifePromises))
    it.effect(title, () => Effect.promise(() => promise(subject)))
}

describe("a client in memory", () => {
  keepsPromises({
    client: (snapshot) => sandboxClient({ host, snapshot }),
    isReal: false,
    keepsModes: false
  })
})

// It opens files with Python.
describe.skipIf(!existsSync("/usr/bin/python3"))("the SDK's own client for local directories", () => {
  keepsPromises({
    client: (snapshot) => {
      const client = new UnixLocalSandboxClient({ snapshot, defaultShell: "/bin/bash" })
      return client as unknown as ReturnType<Subject["client"]>
    },
    isReal: true,
    keepsModes: false
  })
})

describe("the SDK's loop", () => {
  it.effect("uses the tools of a session, and goes on after a pause", () =>
    Effect.promise(() => task(sandboxClient({ host })))
  )

  it.effect("uses a session of the caller, and a state that the caller has stored", () =>
    Effect.promise(() =>
      ownSession(
        sandboxClient({ host, snapshot: { type: "remote", store: new InMemoryRemoteSnapshotStore() } })
      )
    )
  )

  it.effect("goes on from JSON, in another client, with the files of the snapshot", () =>
    Effect.promise(async () => {
      const snapshot = { type: "remote", store: new InMemoryRemoteSnapshotStore() }
      const own = createHost({ inMemory: program })
      await task(sandboxClient({ host: own, snapshot }), async () => {
        await own.close()
        return sandboxClient({ host, snapshot })
      })
    })
  )
})
