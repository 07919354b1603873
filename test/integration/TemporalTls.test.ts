/** Durable runs over TLS with a client certificate and an API key, on a real Temporal server. */
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import * as HostKeeper from "@cogni/sandbox-temporal/HostKeeper"
import * as RunWorker from "@cogni/sandbox-temporal/RunWorker"
import { defaults, type TemporalServer } from "@cogni/sandbox-temporal/TemporalServer"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { readFileSync } from "node:fs"
import * as Runs from "../../packages/temporal/test/Runs.ts"
import * as Await from "../harness/Await.ts"
import * as TemporalDevServer from "../harness/TemporalDevServer.ts"
import * as TemporalTlsDoor from "../harness/TemporalTlsDoor.ts"

const { serverName } = TemporalTlsDoor

const serverAt = ({ address, files }: TemporalTlsDoor.TemporalTlsDoor, apiKey: string): TemporalServer => ({
  ...defaults,
  address,
  tls: {
    authorities: readFileSync(files.ca),
    serverName,
    client: {
      certificate: readFileSync(files.cert),
      privateKey: Redacted.make(readFileSync(files.key))
    }
  },
  apiKey: Effect.succeed(Redacted.make(apiKey))
})

const refusedBy = (server: TemporalServer) =>
  Effect.flip(Effect.scoped(DurableRuns.make({ ...server, isSearchable: true })))

describe("a Temporal server behind TLS", () => {
  it.live("runs what was submitted, and both sides send the API key", () =>
    Effect.gen(function* () {
      const door = yield* TemporalTlsDoor.acquire(yield* TemporalDevServer.acquire)
      door.accept("key-1")
      const server = serverAt(door, "key-1")
      const memory = yield* HostKeeper.makeMemory(Runs.grant, [Runs.graphId])
      yield* RunWorker.serve({
        ...server,
        host: "host-1",
        keepers: [memory.keeper],
        capacity: { runsMax: 1, labels: [] }
      }).pipe(Effect.forkScoped)
      const runs = yield* DurableRuns.make({ ...server, isSearchable: true })
      yield* runs.submit(Runs.run("run-over-tls"))
      yield* Await.until(
        "the run has started",
        Effect.map(memory.started, (all) => all.includes("run-over-tls"))
      )
      yield* memory.change("run-over-tls", { status: "succeeded" })
      assert.strictEqual((yield* runs.wait("run-over-tls")).status, "succeeded")
      assert.deepStrictEqual(door.keys, ["Bearer key-1"])
      assert.isAtLeast(door.sessions(), 2)
    })
  )

  it.live("is not used with another API key, authority, name or client", () =>
    Effect.gen(function* () {
      const door = yield* TemporalTlsDoor.acquire(yield* TemporalDevServer.acquire)
      door.accept("key-1")
      const valid = serverAt(door, "key-1")
      const wrongKey = yield* refusedBy(serverAt(door, "key-2"))
      assert.strictEqual(wrongKey.reason, "Unauthorized")
      assert.notInclude(wrongKey.message, "key-2")
      const asked = door.keys.length
      const { client } = valid.tls ?? {}
      const otherKey = client && { ...client, privateKey: Redacted.make(readFileSync(door.files.otherKey)) }
      const others = [
        { ...valid, tls: { ...valid.tls, authorities: undefined } },
        { ...valid, tls: { ...valid.tls, serverName: undefined } },
        { ...valid, tls: { ...valid.tls, client: undefined } },
        { ...defaults, address: door.address },
        { ...valid, tls: { ...valid.tls, client: otherKey } }
      ]
      const refusals = yield* Effect.forEach(others, refusedBy, { concurrency: others.length })
      assert.deepStrictEqual(
        refusals.map(({ reason }) => reason),
        ["Unreachable", "Unreachable", "Unreachable", "Unreachable", "CredentialsInvalid"]
      )
      for (const [at, why] of [
        [0, "SELF_SIGNED_CERT_IN_CHAIN"],
        [1, "ERR_TLS_CERT_ALTNAME_INVALID"],
        [2, "ALERT_CERTIFICATE_REQUIRED"],
        [3, "expects TLS"]
      ] as const)
        assert.include(refusals[at]?.message, why)
      assert.lengthOf(door.keys, asked, "a request without the right connection passed")
    })
  )
})
