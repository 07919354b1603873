import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import { Redacted, Result } from "effect"
import { createHmac } from "node:crypto"
import * as RunToken from "../src/internal/nginx/RunToken.ts"
import * as SharedNginxConfig from "../src/internal/nginx/SharedNginxConfig.ts"
import * as SharedProgram from "../src/internal/nginx/SharedProgram.ts"
import * as RoutePolicy from "../src/internal/policy/RoutePolicy.ts"
import * as Upstream from "../src/Upstream.ts"
import * as Tokenizer from "./NginxTokenizer.ts"

const secret = Buffer.from("0123456789abcdef0123456789abcdef")

const text = SharedNginxConfig.render({
  address: Result.getOrThrow(Upstream.address({ type: "host", url: "http://127.0.0.1:4000" })),
  via: "relay",
  headerNames: ["authorization", "x-litellm-customer-id", "traceparent"],
  runtimeSecondsMax: 600,
  slotsMax: 3,
  connectionsPerRunMax: 7,
  tokenSecret: secret
})

/** The configuration without the program, whose language the tokenizer does not know. */
const root = Tokenizer.parse(text.replace(/init_by_lua_block \{[\s\S]*?= program\n {2}\}\n/u, ""))
const http = root.find(({ words }) => words[0] === "http")!
const [server, control] = Tokenizer.children(http, "server") as [Tokenizer.Node, Tokenizer.Node]
const stream = root.find(({ words }) => words[0] === "stream")!
const wordsOf = (node: Tokenizer.Node, name: string) =>
  Tokenizer.children(node, name).map(({ words }) => words.slice(1).join(" "))

describe("SharedNginxConfig", () => {
  it("passes requests on in the locations of the listed routes only, each by the program", () => {
    const passing = Tokenizer.children(server, "location").filter(
      (location) => Tokenizer.children(location, "proxy_pass").length > 0
    )
    assert.deepStrictEqual(
      passing.map(({ words }) => words.slice(1)),
      RoutePolicy.routes.map(({ path }) => ["=", `/-/pass${path}`])
    )
    for (const location of passing) {
      assert.deepStrictEqual(wordsOf(location, "access_by_lua"), ['return require("cogni").pass()'])
      assert.strictEqual(Tokenizer.children(location, "internal").length, 1)
    }
    const rest = Tokenizer.children(server, "location").find(({ words }) => words[1] === "/")!
    assert.deepStrictEqual(wordsOf(rest, "access_by_lua"), ['return require("cogni").refuse()'])
  })

  it("passes no client header on, and sets those of a run from variables that only the program sets", () => {
    assert.deepStrictEqual(wordsOf(http, "proxy_pass_request_headers"), ["off"])
    const headers = wordsOf(server, "proxy_set_header")
    assert.includeMembers(headers, [
      "authorization $cogni_header_1",
      "x-litellm-customer-id $cogni_header_2",
      "traceparent $cogni_header_3"
    ])
    const setting = Tokenizer.children(server, "location")
      .filter((location) => wordsOf(location, "set").some((words) => words.startsWith("$cogni_")))
      .map(({ words }) => words.slice(1))
    assert.deepStrictEqual(setting, [["=", "/-/variables"]])
    assert.notMatch(JSON.stringify(wordsOf(server, "set")), /cogni_/u)
  })

  it("counts the connections of each socket before it hands them to the socket's own counterpart", () => {
    const [entrance] = Tokenizer.children(stream, "server")
    assert.deepStrictEqual(wordsOf(stream, "limit_conn"), ["connections 7"])
    assert.deepStrictEqual(wordsOf(stream, "limit_conn_zone"), ["$server_addr zone=connections:4m"])
    assert.deepStrictEqual(
      wordsOf(entrance!, "listen").map((words) => words.split(" ")[0]),
      ["unix:/sockets/0.sock", "unix:/sockets/1.sock", "unix:/sockets/2.sock"]
    )
    assert.deepStrictEqual(wordsOf(entrance!, "proxy_pass"), ["unix:/tmp/$slot.sock"])
    assert.deepStrictEqual(
      wordsOf(server, "listen").map((words) => words.split(" ")[0]),
      ["unix:/tmp/0.sock", "unix:/tmp/1.sock", "unix:/tmp/2.sock", "unix:/sockets/token.sock"]
    )
  })

  it("takes commands on a socket in the container's own memory, and nowhere else", () => {
    assert.deepStrictEqual(wordsOf(control, "listen"), [`unix:${SharedNginxConfig.paths.control}`])
    assert.notInclude(JSON.stringify(server), "control()")
  })

  it("logs each run into its own file, with the run's ID, and nothing that belongs to no run", () => {
    assert.deepStrictEqual(wordsOf(http, "access_log"), ["/logs/$cogni_place.log call if=$cogni_logged"])
    assert.match(wordsOf(http, "log_format")[0]!, /"run":"\$cogni_run"/u)
  })

  it("contains a program whose every variable the configuration declares", () => {
    const declared = wordsOf(
      Tokenizer.children(server, "location").find(({ words }) => words[2] === "/-/variables")!,
      "set"
    ).map((words) => words.split(" ")[0]!.slice(1))
    const { header, slot, ...others } = SharedProgram.variables
    assert.sameMembers(declared, [...Object.values(others), `${header}1`, `${header}2`, `${header}3`])
    assert.strictEqual(slot, "cogni_slot")
  })
})

describe("RunToken", () => {
  it("is the run, its end, and their HMAC", () => {
    const runId = RunId.make("run-4f7k2m9q0x1z")
    const [id, expiry, signature, ...more] = Redacted.value(RunToken.sign(secret, runId, 1234.5)).split(".")
    assert.deepStrictEqual([id, expiry, more], [runId, "1234", []])
    assert.strictEqual(signature, createHmac("sha256", secret).update(`${runId}.1234`).digest("base64url"))
  })
})
