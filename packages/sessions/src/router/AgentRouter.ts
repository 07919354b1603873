/**
 * Which agent answers whom: the rule of a sender, else of a sender like this, else of the channel, else the default.
 *
 * Made of one configuration and never changed. Of patterns that match, the longest decides; of those as long, the one
 * whose characters come first: the order of a file decides nothing. Pure.
 */
import { Option, Result } from "effect"
import type { AgentConfig } from "../config/AgentConfig.ts"
import type { Configuration } from "../config/Configuration.ts"
import * as SenderPattern from "../internal/config/SenderPattern.ts"

/** Who says something, and where. */
export interface Sender {
  readonly channel: string
  readonly senderId: string
}

/** What decided. */
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
  /** Of any two strings, whatever is in them. */
  readonly resolve: (sender: Sender) => Resolution
}

/** Throws what is no configuration: one whose routing names agents that it has not. */
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

/** As it is written in a configuration: `routing.senders."slack:U0*"`. */
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
 * What a session is called: `channel:sender:agent`, another for each three.
 *
 * No agent's name has a colon, and those of the channel are written `%3A` (`%` as `%25`): the first colon ends the
 * channel and the last begins the agent, whatever the sender is called.
 */
export const keyOf = ({ channel, senderId }: Sender, agent: string): string =>
  `${channel.replaceAll("%", "%25").replaceAll(":", "%3A")}:${senderId}:${agent}`

/** A channel of a configuration has no colon; one of a message that has is nobody's here. */
const entryOf = (channel: string, sender: string): string => JSON.stringify([channel, sender])
