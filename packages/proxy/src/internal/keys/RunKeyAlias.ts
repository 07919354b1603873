/** Names of keys: the deployment and the run of each. Pure, except for the random part. */
import * as Hex from "effect/encoding/Hex"
import * as Schema from "effect/Schema"
import { createHash } from "node:crypto"
import type { RunId } from "@cogni/sandbox-core/RunId"

/** First part of each alias. */
const first = "cogni-sandbox"

/** Name of a deployment in aliases. */
export const Deployment = Schema.String.check(
  Schema.isPattern(/^[a-z0-9][a-z0-9-]{0,39}$/u, {
    expected: "1 to 40 lower-case letters, digits and hyphens, such as team-a"
  })
)

/** Beginning of all aliases of a deployment. */
export const prefixOf = (deployment: string): string => `${first}.${deployment}.`

/** Creates the alias of a new key. Two attempts of one run have different keys. */
export const make = (deployment: string, runId: RunId): string =>
  `${prefixOf(deployment)}${runId}.${Hex.encode(crypto.getRandomValues(new Uint8Array(6)))}`

/** Returns the run that an alias names; `undefined` if the alias is not of this deployment. */
export const runOf = (deployment: string, alias: string): string | undefined => {
  const prefix = prefixOf(deployment)
  const [runId, nonce, ...rest] = alias.startsWith(prefix) ? alias.slice(prefix.length).split(".") : []
  return runId !== undefined && rest.length === 0 && /^[0-9a-f]{12}$/u.test(nonce ?? "") ? runId : undefined
}

/** Returns the hash by which LiteLLM names a key. */
export const hashOf = (key: string): string => createHash("sha256").update(key).digest("hex")
