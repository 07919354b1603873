/** Says why no host took a run, and what to do, for reasons that more room would not change. Pure. */
import type { Asked, Misfit } from "./Placement.ts"

type Words = (asked: Pick<Asked, "grantId" | "graphId">) => string

const words: Partial<Record<Misfit, Words>> = {
  NoSuchGrant: ({ grantId }) =>
    `the worker that was asked last has no token of grant ${grantId}. Check the ID (grants list), or give a worker its token file`,
  NoSuchGraph: ({ graphId }) =>
    `the worker that was asked last does not offer ${graphId}. Check the ID, or add the agent to a server of a host`,
  LabelMissing: () =>
    "the worker that was asked last lacks a label of the run. Start one with these labels, or ask for fewer",
  TooLarge: () =>
    "the host that was asked last is too small for the run. Ask for fewer cores or less memory, or start a worker that offers more"
}

/** Returns the message for a reason, which is the reason itself if it needs no words. */
export const messageOf = (reason: string, asked: unknown): string => {
  const text = Object.hasOwn(words, reason) ? words[reason as Misfit] : undefined
  return text === undefined || !isAsked(asked) ? reason : text(asked)
}

const isAsked = (asked: unknown): asked is Pick<Asked, "grantId" | "graphId"> =>
  typeof asked === "object" && asked !== null && "grantId" in asked
