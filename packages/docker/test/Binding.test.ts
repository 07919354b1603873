import { assert, describe, it } from "@effect/vitest"
import { Argument, Environment } from "@cogni/sandbox-core/SpecFields"
import { Schema } from "effect"
import { encode, encodeLoad } from "../src/internal/container/Binding.ts"
import * as ContainerSpecs from "./ContainerSpecs.ts"

const socket = { COGNI_SOCKET: "/llm-sock/llm.sock" }
const run = {
  ...ContainerSpecs.written,
  argv: ["sh", "-c", "echo 'a\nb' \\n"],
  env: { ...socket, A: "1", LONG: "x\n\n" }
}

/** Reads lines as the entrypoint does. */
const decoded = (text: string) => {
  const lines = text.split("\n")
  const next = () => lines.shift() ?? assert.fail("a line is missing")
  const line = () => next().replaceAll(/\\([\\n])/gu, (_, mark: string) => (mark === "n" ? "\n" : "\\"))
  const listed = () => Array.from({ length: Number(next()) }, line)
  return {
    word: next(),
    seconds: next(),
    token: next(),
    socket: next(),
    env: listed(),
    argv: listed(),
    rest: lines
  }
}

describe("Binding", () => {
  it("equals the recorded lines", () => {
    assert.strictEqual(encode(run), "claim\n65\n\n1\n2\nA=1\nLONG=x\\n\\n\n3\nsh\n-c\necho 'a\\nb' \\\\n\n")
    assert.strictEqual(encode({ ...run, env: {} }).split("\n")[3], "0", "without a socket")
  })

  it("says so if a directory is bound into the sandbox", () => {
    const [bound, ...rest] = encode(run, { hasDirectory: true }).split("\n")
    assert.strictEqual(bound, "claim directory")
    assert.deepStrictEqual(rest, encode(run).split("\n").slice(1))
  })

  it("asks for a program before there is a run", () => {
    assert.strictEqual(encodeLoad(["node", "a\nb"], "nonce"), "load\nnonce\n2\nnode\na\\nb\n")
  })

  it("sends an open sandbox neither variables nor a command", () => {
    assert.strictEqual(encode({ ...run, supervised: true }), "claim\n65\n\n1\n0\n0\n")
  })

  it.prop("carries any text unchanged", [Environment, Schema.NonEmptyArray(Argument)], ([env, argv]) => {
    const read = decoded(encode({ ...ContainerSpecs.written, env, argv }, { token: "token" }))
    assert.deepStrictEqual(read, {
      word: "claim",
      seconds: "65",
      token: "token",
      socket: "0",
      env: Object.entries(env).map(([name, value]) => `${name}=${value}`),
      argv: [...argv],
      rest: [""]
    })
  })
})
