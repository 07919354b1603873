/** A name is resolved once, and git connects to the resulting addresses. Other addresses are never contacted. */
import { GitCredentials } from "@cogni/sandbox-git-relay/GitCredentials"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { type AddressInfo, createServer } from "node:net"
import { networkInterfaces } from "node:os"
import * as HostGit from "../src/internal/git/HostGit.ts"
import * as RemoteOrigin from "../src/internal/origin/RemoteOrigin.ts"
import * as OriginRoute from "../src/internal/origin/OriginRoute.ts"

/** A server that records the first bytes of each connection. */
const listener = Effect.acquireRelease(
  Effect.callback<{ readonly port: number; readonly heard: Array<Buffer>; readonly close: () => void }>(
    (resume) => {
      const heard: Array<Buffer> = []
      const server = createServer((socket) => {
        socket.on("error", () => undefined)
        socket.once("data", (piece: Buffer) => {
          heard.push(piece)
          socket.destroy()
        })
      })
      server.listen(0, "0.0.0.0", () =>
        resume(
          Effect.succeed({
            port: (server.address() as AddressInfo).port,
            heard,
            close: () => void server.close()
          })
        )
      )
    }
  ),
  ({ close }) => Effect.sync(close)
)

const finding = (...answers: ReadonlyArray<ReadonlyArray<string>>) => {
  const asked: Array<string> = []
  const lookup: OriginRoute.Lookup = async (hostname) => {
    asked.push(hostname)
    return answers[asked.length - 1] ?? []
  }
  return { asked, lookup }
}

const url = "https://git.example.com/acme/app"

describe("OriginRoute", () => {
  it.effect("connects git to the address that was found, and git resolves no name itself", () =>
    Effect.gen(function* () {
      const { heard, port } = yield* listener
      const origin = `https://no-such-name.invalid:${port}/acme/app`
      const { asked, lookup } = finding(["127.0.0.1"])
      const way = yield* OriginRoute.wayTo(origin, undefined, [`no-such-name.invalid:${port}`], lookup)
      assert.deepStrictEqual(asked, ["no-such-name.invalid"])
      assert.strictEqual(way.resolve, `no-such-name.invalid:${port}:127.0.0.1`)
      const answer = yield* HostGit.run({
        ...way,
        transport: "https",
        argv: ["ls-remote", "--", origin],
        runtimeSecondsMax: 30
      })
      assert.notStrictEqual(answer.exitCode, 0)
      assert.notInclude(answer.stderr, "Could not resolve")
      assert.isAtLeast(heard.length, 1)
      assert.include(heard[0]!.toString("latin1"), "no-such-name.invalid", "the name that TLS is asked for")
    })
  )

  it.effect("keeps the first addresses of a name that changes them", () =>
    Effect.gen(function* () {
      const { asked, lookup } = finding(["1.1.1.1", "2606:4700::1111"], ["127.0.0.1"])
      const way = yield* OriginRoute.wayTo(url, { caFile: "/etc/ca.pem" }, [], lookup)
      assert.deepStrictEqual(way, {
        network: { caFile: "/etc/ca.pem" },
        resolve: "git.example.com:443:1.1.1.1,[2606:4700::1111]"
      })
      assert.lengthOf(asked, 1)
      const second = yield* Effect.flip(OriginRoute.wayTo(url, undefined, [], lookup))
      assert.strictEqual(second.fault, "unreachable")
    })
  )

  it.effect("does not connect to this host's own addresses, and requests no credential", () =>
    Effect.gen(function* () {
      const { heard, port } = yield* listener
      const own = Object.values(networkInterfaces())
        .flatMap((entries) => entries ?? [])
        .filter(({ family }) => family === "IPv4")
        .map(({ address }) => address)
      assert.isNotEmpty(own)
      for (const address of [...own, "localhost", "2130706433", "127.1"]) {
        const error = yield* Effect.flip(
          RemoteOrigin.advertised(
            {
              url: `https://${address}:${port}/acme/app`,
              network: undefined,
              privateServers: [],
              transferSecondsMax: 30,
              cloneBytesMax: 1
            },
            ["HEAD"]
          )
        )
        assert.containSubset(error, { _tag: "OriginUnavailable", fault: "unreachable" })
      }
      assert.deepStrictEqual(heard, [])
    }).pipe(
      Effect.provideService(GitCredentials, { get: () => Effect.die("a credential was asked for") } as never)
    )
  )

  it.effect("leaves names to the operator's proxy, but still checks literal addresses", () =>
    Effect.gen(function* () {
      const { asked, lookup } = finding(["1.1.1.1"])
      const network = { proxyUrl: "http://proxy.example:3128", noProxy: "direct.example" }
      assert.deepStrictEqual(yield* OriginRoute.wayTo(url, network, [], lookup), {
        network: { proxyUrl: "http://proxy.example:3128" }
      })
      assert.deepStrictEqual(asked, [])
      assert.deepStrictEqual(yield* OriginRoute.wayTo("https://direct.example/a/b", network, [], lookup), {
        network: {},
        resolve: "direct.example:443:1.1.1.1"
      })
      yield* Effect.flip(OriginRoute.wayTo("https://10.0.0.1/a/b", network, [], lookup))
    })
  )

  it.effect("fails for a name that cannot be resolved or has no address", () =>
    Effect.gen(function* () {
      const failing = () => Promise.reject(new Error("ENOTFOUND"))
      assert.strictEqual(
        (yield* Effect.flip(OriginRoute.wayTo(url, undefined, "any", failing))).fault,
        "unknown_host"
      )
      yield* Effect.flip(OriginRoute.wayTo(url, undefined, "any", finding([]).lookup))
    })
  )
})
