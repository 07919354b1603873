/**
 * Selects the agent for a sender: the sender's own rule, a matching pattern, the channel's rule, or the default.
 *
 * A router is made from one configuration and never changes. Among matching patterns, the longest decides, and among
 * those of equal length the first in character order. The order of the file has no effect. Pure.
 */
import { Option, Result } from "effect"
import type { AgentConfig } from "../config/AgentConfig.ts"
import type { Configuration } from "../config/Configuration.ts"
import * as SenderPattern from "../internal/config/SenderPattern.ts"

/** The sender of a message, and its channel. */
export interface Sender {
  readonly channel: string
  readonly senderId: string
}

/** The rule that selected the agent. */
export type Rule =
  | { readonly _tag: "Sender"; readonly channel: string; readonly sender: string }
  | { readonly _tag: "SenderPattern"; readonly channel: string; readonly pattern: string }
  | { readonly _tag: "Channel"; readonly channel: string }
  | { readonly _tag: "Default" }

export interface Resolution {
  readonly agent: AgentConfig
  readonly rule: Rule
}

export interface AgentRouter {
  /** Accepts any two strings. */
  readonly resolve: (sender: Sender) => Resolution
}

/** Throws if a rule names an agent that the configuration does not define. A parsed configuration never does. */
export const make = ({ agents, routing }: Pick<Configuration, "agents" | "routing">): AgentRouter => {
  const agentOf = (name: string): AgentConfig => Option.getOrThrow(agents.get(name))
  const otherwise = agentOf(routing.defaultAgent)
  const channels = new Map(
    Object.entries(routing.channels).map(([channel, agent]) => [channel, agentOf(agent)])
  )
  const senders = Object.entries(routing.senders).map(([key, agent]) => ({
    pattern: Result.getOrThrow(SenderPattern.parse(key)),
    agent: agentOf(agent)
  }))
  const exact = new Map(
    senders.flatMap(({ agent, pattern }) =>
      pattern.exact === undefined ? [] : [[entryOf(pattern.channel, pattern.exact), agent] as const]
    )
  )
  const like = Map.groupBy(
    senders
      .filter(({ pattern }) => pattern.exact === undefined)
      .toSorted((a, b) => SenderPattern.compare(a.pattern, b.pattern)),
    ({ pattern }) => pattern.channel
  )
  return {
    resolve: ({ channel, senderId }) => {
      const named = exact.get(entryOf(channel, senderId))
      if (named !== undefined) {
        return { agent: named, rule: { _tag: "Sender", channel, sender: senderId } }
      }
      const matching = like.get(channel)?.find(({ pattern }) => pattern.matches(senderId))
      if (matching !== undefined) {
        const pattern = matching.pattern.text
        return { agent: matching.agent, rule: { _tag: "SenderPattern", channel, pattern } }
      }
      const ofChannel = channels.get(channel)
      return ofChannel === undefined
        ? { agent: otherwise, rule: { _tag: "Default" } }
        : { agent: ofChannel, rule: { _tag: "Channel", channel } }
    }
  }
}

/** Describes a rule by its key: `routing.senders, the pattern "slack:U0*"`. */
export const describeRule = (rule: Rule): string => {
  switch (rule._tag) {
    case "Sender":
      return `routing.senders, the sender ${JSON.stringify(`${rule.channel}:${rule.sender}`)}`
    case "SenderPattern":
      return `routing.senders, the pattern ${JSON.stringify(`${rule.channel}:${rule.pattern}`)}`
    case "Channel":
      return `routing.channels, the channel ${JSON.stringify(rule.channel)}`
    case "Default":
      return "routing.default_agent"
  }
}

/**
 * Returns the key of a session, `channel:sender:agent`, which is different for each combination.
 *
 * In the channel, `:` is written `%3A` and `%` is written `%25`, and an agent name has no colon. The first colon ends
 * the channel and the last starts the agent, whatever the sender ID contains.
 */
export const keyOf = ({ channel, senderId }: Sender, agent: string): string =>
  `${channel.replaceAll("%", "%25").replaceAll(":", "%3A")}:${senderId}:${agent}`

/** A message may name a channel with a colon. Such a channel must match no rule, so the parts are not simply joined. */
const entryOf = (channel: string, sender: string): string => JSON.stringify([channel, sender])
