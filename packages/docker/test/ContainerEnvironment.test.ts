import { assert, describe, it } from "@effect/vitest"
import { hasSocket, ofAgent, ofContainer, ofWaiting } from "../src/internal/container/ContainerEnvironment.ts"
import { Environment } from "@cogni/sandbox-core/SpecFields"
import * as ContainerSpecs from "./ContainerSpecs.ts"

const agent = {
  role: "agent" as const,
  env: { COGNI_SOCKET: "/llm-sock/llm.sock", PERL5LIB: "/workspace", A: "1\n2" }
}

describe("ContainerEnvironment", () => {
  it("passes a caller's variables under names that no program reads", () => {
    assert.deepStrictEqual(ofContainer(agent), [
      "HOME=/home/agent",
      "COGNI_SOCKET=/llm-sock/llm.sock",
      "COGNI_HOLD=1",
      "COGNI_ENV=2",
      "COGNI_ENV_0=PERL5LIB=/workspace",
      "COGNI_ENV_1=A=1\n2"
    ])
    assert.deepStrictEqual(ofContainer({ role: "agent", env: {} }), ["HOME=/home/agent", "COGNI_HOLD=1"])
  })

  it("omits them from an open sandbox, where each command is sent its own", () => {
    assert.deepStrictEqual(ofContainer({ ...agent, supervised: true }), [
      "HOME=/home/agent",
      "COGNI_SOCKET=/llm-sock/llm.sock",
      "COGNI_HOLD=1"
    ])
    assert.deepStrictEqual(ofAgent(agent), { PERL5LIB: "/workspace", A: "1\n2" })
  })

  it("is the same for every sandbox that waits", () => {
    assert.deepStrictEqual(ofWaiting, ["HOME=/home/agent", "COGNI_SOCKET=/llm-sock/llm.sock"])
    assert.isTrue(hasSocket(agent))
    assert.isFalse(hasSocket({ env: { A: "1" } }))
  })

  it("passes the variables of a host's container unchanged", () => {
    for (const role of ["relay", "proxy"] as const) {
      assert.deepStrictEqual(ofContainer({ role, env: { A: "1" } }), ["A=1"])
    }
  })

  it.prop("uses no name of the caller in the container", [Environment], ([env]) => {
    for (const supervised of [true, false]) {
      const names = ofContainer({ ...ContainerSpecs.written, env, supervised }).map(
        (line) => /^[^=]*/u.exec(line)![0]
      )
      assert.strictEqual(new Set(names).size, names.length)
      for (const name of names) assert.match(name, /^(?:HOME|COGNI_HOLD|COGNI_ENV|COGNI_ENV_\d+)$/u)
    }
    assert.deepStrictEqual(ofAgent({ env }), env)
  })
})
