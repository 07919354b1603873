/**
 * Request bodies for tests, from real agents and written by hand, with their policies.
 *
 * The fixtures of agents were recorded from the programs themselves. Long texts were shortened, and details about a
 * machine were removed. The fixtures `by hand` have every allowed shape.
 */
import { assert } from "@effect/vitest"
import { Result } from "effect"
import { readdirSync, readFileSync } from "node:fs"
import type { BodyPolicy } from "../src/internal/policy/BodyRules.ts"
import * as RequestBody from "../src/internal/policy/RequestBody.ts"
import * as RoutePolicy from "../src/internal/policy/RoutePolicy.ts"

export type Json = Record<string, any>

export interface Fixture {
  readonly name: string
  readonly agent: string
  readonly api: RoutePolicy.Api
  readonly headers: Readonly<Record<string, string>>
  readonly body: Json
  /** Alternative fields of the body. */
  readonly also?: ReadonlyArray<Json>
}

const folder = new URL("fixtures/", import.meta.url)

export const fixtures: ReadonlyArray<Fixture> = readdirSync(folder)
  .filter((file) => file.endsWith(".json"))
  .toSorted()
  .map((file) => ({
    name: file.replace(/\.json$/u, ""),
    ...(JSON.parse(readFileSync(new URL(file, folder), "utf8")) as Omit<Fixture, "name">)
  }))

export const fixture = (name: string): Fixture => fixtures.find((one) => one.name === name)!

export const account = "acct"

export const policyOf = (api: RoutePolicy.Api, policy: Partial<BodyPolicy> = {}): BodyPolicy => ({
  api,
  model: "m",
  models: { m: "m", other: "vendor/other" },
  endUser: { field: api === "messages" ? "metadata.user_id" : "user", value: account },
  cacheScope: account,
  unknownFields: "drop",
  ...policy
})

export const headersOf = ({ headers }: Fixture): ReadonlyArray<RoutePolicy.Header> => Object.entries(headers)

/** Returns the policy of a run of this agent. */
export const policyFor = (one: Fixture, policy: Partial<BodyPolicy> = {}) =>
  policyOf(one.api, {
    model: one.body["model"],
    models: { [one.body["model"]]: one.body["model"] },
    betas: RoutePolicy.betas(headersOf(one)),
    ...policy
  })

const encoder = new TextEncoder()

export const bytesOf = (body: unknown): Uint8Array =>
  body instanceof Uint8Array ? body : encoder.encode(typeof body === "string" ? body : JSON.stringify(body))

export const rebuild = (body: unknown, policy: BodyPolicy) => RequestBody.rebuild(bytesOf(body), policy)

export const passed = (body: unknown, policy: BodyPolicy) => {
  const result = rebuild(body, policy)
  if (Result.isFailure(result)) return assert.fail(`refused: ${JSON.stringify(result.failure)}`)
  return { ...result.success, sent: JSON.parse(result.success.body) as Json }
}

export const refused = (body: unknown, policy: BodyPolicy): RequestBody.BodyRefused => {
  const result = rebuild(body, policy)
  if (Result.isSuccess(result)) return assert.fail(`passed: ${result.success.body.slice(0, 200)}`)
  return result.failure
}
