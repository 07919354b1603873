/** Routing, compared with a plain reading of the rules in any order of the file, and unique session keys. */
import { assert, describe, it } from "@effect/vitest"
import * as AgentConfigRegistry from "../src/config/AgentConfigRegistry.ts"
import * as AgentRouter from "@cogni/sandbox-sessions/router/AgentRouter"
import * as Orchestrator from "@cogni/sandbox-sessions/router/Orchestrator"
import * as SessionId from "../src/sandbox/SessionId.ts"
import { Effect, Result, Schema } from "effect"
import { parse } from "../src/internal/config/SenderPattern.ts"
import { agentNamed } from "./Agents.ts"

const names = ["a", "b", "c", "d"]

const agents = AgentConfigRegistry.make(names.map((name) => agentNamed(name)))

interface Rules {
  readonly channels?: Readonly<Record<string, string>>
  readonly senders?: Readonly<Record<string, string>>
}

const routerOf = ({ channels = {}, senders = {} }: Rules) =>
  AgentRouter.make({ agents, routing: { defaultAgent: "a", channels, senders } })

const resolve = (rules: Rules, channel: string, senderId: string) => {
  const { agent, rule } = routerOf(rules).resolve({ channel, senderId })
  return [agent.name, rule] as const
}

describe("a sender", () => {
  const rules: Rules = {
    channels: { slack: "b" },
    senders: {
      "slack:U1": "c",
      "slack:U*": "d",
      "slack:U1*": "a",
      "mail:*@x.org": "c",
      "slack:V?": "c",
      "slack:V*": "d"
    }
  }

  it("uses its own rule, the longest matching pattern, its channel's rule, or the default", () => {
    assert.deepStrictEqual(resolve(rules, "slack", "U1"), [
      "c",
      { _tag: "Sender", channel: "slack", sender: "U1" }
    ])
    assert.deepStrictEqual(resolve(rules, "slack", "U12"), [
      "a",
      { _tag: "SenderPattern", channel: "slack", pattern: "U1*" }
    ])
    assert.deepStrictEqual(resolve(rules, "slack", "U2"), [
      "d",
      { _tag: "SenderPattern", channel: "slack", pattern: "U*" }
    ])
    assert.deepStrictEqual(resolve(rules, "slack", "W"), ["b", { _tag: "Channel", channel: "slack" }])
    assert.deepStrictEqual(resolve(rules, "telegram", "W"), ["a", { _tag: "Default" }])
    assert.deepStrictEqual(resolve(rules, "mail", "ana@x.org")[0], "c")
  })

  it("uses the first in character order of patterns with equal length", () => {
    assert.deepStrictEqual(resolve(rules, "slack", "V1"), [
      "d",
      { _tag: "SenderPattern", channel: "slack", pattern: "V*" }
    ])
    const astral: Rules = { senders: { "x:*😀": "b", "x:*\uff5e": "c", "x:??": "d" } }
    assert.strictEqual(resolve(astral, "x", "a\uff5e")[0], "c")
    assert.strictEqual(
      resolve({ senders: { "x:[\uff5e]*": "c", "x:[😀\uff5e]": "b" } }, "x", "\uff5e")[0],
      "c"
    )
  })

  it("a sender of a channel with a colon does not match another channel", () => {
    const of: Rules = { senders: { "a:b:c": "b", "a:b:*": "c" }, channels: { a: "d" } }
    assert.strictEqual(resolve(of, "a", "b:c")[0], "b")
    assert.strictEqual(resolve(of, "a", "b:x")[0], "c")
    assert.strictEqual(resolve(of, "a:b", "c")[0], "a")
    assert.strictEqual(resolve(of, "a:b", "x")[0], "a")
  })

  it("a sender whose ID looks like a pattern is one sender", () => {
    assert.strictEqual(resolve({ senders: { "x:U1": "b" } }, "x", "U*")[0], "a")
    assert.strictEqual(resolve({ senders: { "x:U\\*": "b" } }, "x", "U*")[0], "b")
    assert.strictEqual(resolve({ senders: { "x:U\\*": "b" } }, "x", "U1")[0], "a")
  })

  it("can have the name of a member of Object", () => {
    for (const name of ["__proto__", "constructor", "toString"]) {
      assert.strictEqual(resolve({ channels: { x: "b" } }, name, name)[0], "a")
    }
  })

  it("requires rules that name defined agents", () => {
    assert.throws(() => routerOf({ channels: { x: "nobody" } }))
  })
})

const Channel = Schema.Literals(["x", "y"])
const Pattern = Schema.Array(Schema.Literals(["p", "q", "*", "?", "[pq]"])).check(
  Schema.isMinLength(1),
  Schema.isMaxLength(4)
)
const Agent = Schema.Literals(["a", "b", "c", "d"])
const Table = Schema.Array(Schema.Tuple([Channel, Pattern, Agent])).check(Schema.isMaxLength(8))
const SenderId = Schema.Array(Schema.Literals(["p", "q", "r"])).check(Schema.isMaxLength(4))
const Channels = Schema.Record(Channel, Agent)

const sendersOf = (table: typeof Table.Type): Readonly<Record<string, string>> =>
  Object.fromEntries(table.map(([channel, pattern, agent]) => [`${channel}:${pattern.join("")}`, agent]))

/** Applies the documented rules one after the other. */
const plainly = (
  senders: Readonly<Record<string, string>>,
  channels: Readonly<Record<string, string>>,
  channel: string,
  senderId: string
): string => {
  const key = `${channel}:${senderId}`
  // No sender ID contains a character of a pattern.
  if (senders[key] !== undefined && senderId !== "") return senders[key]
  const matching = Object.keys(senders)
    .filter((pattern) => /[*?[]/u.test(pattern) && pattern.startsWith(`${channel}:`))
    .filter((pattern) => Result.getOrThrow(parse(pattern)).matches(senderId))
    .toSorted()
    .toSorted((one, other) => other.length - one.length)
  return senders[matching[0] ?? ""] ?? channels[channel] ?? "a"
}

describe("routing", () => {
  it.prop(
    "matches the documented rules",
    [Table, Channels, Schema.Literals(["x", "y", "z"]), SenderId],
    ([table, channels, channel, sender]) => {
      const senders = sendersOf(table)
      const senderId = sender.join("")
      assert.strictEqual(
        resolve({ senders, channels }, channel, senderId)[0],
        plainly(senders, channels, channel, senderId)
      )
    },
    { arbitrary: { runs: 2000, seed: "routing" } }
  )

  it.prop(
    "does not depend on the order of a file",
    [Table, Channel, SenderId, Schema.Int],
    ([table, channel, sender, turn]) => {
      const entries = Object.entries(sendersOf(table))
      const at = entries.length === 0 ? 0 : Math.abs(turn) % entries.length
      const turned = [...entries.slice(at), ...entries.slice(0, at)]
      const senderId = sender.join("")
      const first = resolve({ senders: Object.fromEntries(entries) }, channel, senderId)
      for (const other of [turned, entries.toReversed(), turned.toReversed()]) {
        assert.deepStrictEqual(resolve({ senders: Object.fromEntries(other) }, channel, senderId), first)
      }
    },
    { arbitrary: { runs: 1000, seed: "order" } }
  )
})

const Awkward = Schema.Array(Schema.Literals([":", "%", "3", "A", "%3A", "a", "/", "😀"])).check(
  Schema.isMinLength(1),
  Schema.isMaxLength(5)
)
const Triple = Schema.Tuple([Awkward, Awkward, Agent])

const keyOf = ([channel, sender, agent]: typeof Triple.Type) =>
  AgentRouter.keyOf({ channel: channel.join(""), senderId: sender.join("") }, agent)

describe("a key", () => {
  it("has the form channel:sender:agent for ordinary names", () => {
    assert.strictEqual(AgentRouter.keyOf({ channel: "slack", senderId: "U1" }, "coder"), "slack:U1:coder")
  })

  it.prop(
    "is unique to a channel, sender and agent",
    [Triple, Triple],
    ([one, other]) => {
      const same =
        one.map(String).join("\n") === other.map(String).join("\n") ||
        (one[0].join("") === other[0].join("") &&
          one[1].join("") === other[1].join("") &&
          one[2] === other[2])
      assert.strictEqual(keyOf(one) === keyOf(other), same)
    },
    { arbitrary: { runs: 5000, seed: "keys" } }
  )

  it.prop(
    "changes when text is moved across a colon",
    [Awkward, Awkward, Awkward],
    ([a, b, c]) => {
      const [x, y, z] = [a.join(""), b.join(""), c.join("")]
      const key = (channel: string, senderId: string) => AgentRouter.keyOf({ channel, senderId }, "a")
      assert.notStrictEqual(key(`${x}:${y}`, z), key(x, `${y}:${z}`))
      assert.notStrictEqual(key(`${x}%3A${y}`, z), key(`${x}:${y}`, z))
      assert.notStrictEqual(
        AgentRouter.keyOf({ channel: x, senderId: `${y}:a` }, "b"),
        AgentRouter.keyOf({ channel: x, senderId: y }, "b")
      )
    },
    { arbitrary: { runs: 1000, seed: "shift" } }
  )

  it.effect.prop(
    "is a valid session ID",
    [Triple],
    ([triple]) => Effect.asVoid(SessionId.decode(keyOf(triple))),
    { arbitrary: { runs: 300, seed: "ids" } }
  )

  it.effect("a key of the longest names is a valid session ID", () =>
    SessionId.decode(
      AgentRouter.keyOf(
        {
          channel: ":".repeat(Orchestrator.channelCharactersMax),
          senderId: "😀".repeat(Orchestrator.senderCharactersMax)
        },
        "a".repeat(64)
      )
    )
  )
})

describe("a rule", () => {
  it("is described by its key in the file", () => {
    const { resolve: of } = routerOf({ channels: { x: "b" }, senders: { "x:1": "c", "x:2*": "d" } })
    const said = (channel: string, senderId: string) =>
      AgentRouter.describeRule(of({ channel, senderId }).rule)
    assert.strictEqual(said("x", "1"), 'routing.senders, the sender "x:1"')
    assert.strictEqual(said("x", "22"), 'routing.senders, the pattern "x:2*"')
    assert.strictEqual(said("x", "3"), 'routing.channels, the channel "x"')
    assert.strictEqual(said("y", "3"), "routing.default_agent")
  })
})
