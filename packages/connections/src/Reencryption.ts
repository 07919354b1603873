/**
 * Encrypts all stored secrets again, with the first key of this host. Afterwards, earlier keys can be deleted.
 *
 * Each secret is claimed while it is replaced, so a use at the same time is not lost.
 */
import { Effect } from "effect"
import type { Connection } from "./Connection.ts"
import { ConnectionStore } from "./ConnectionStore.ts"
import type { ConnectionStoreUnavailable } from "./ConnectionReason.ts"
import type { SourceProblem } from "./CredentialSource.ts"
import * as SecretAccess from "./internal/SecretAccess.ts"
import { SecretUnreadable } from "./internal/UseReasons.ts"
import { SecretBox } from "./SecretBox.ts"

export interface Reencrypted {
  readonly count: number
  /** Secrets that are as they were. */
  readonly failed: ReadonlyArray<{
    readonly id: string
    /** `undefined` if this version cannot read its description. */
    readonly connection: Connection | undefined
    readonly problem: SourceProblem
  }>
}

export const all: Effect.Effect<Reencrypted, ConnectionStoreUnavailable, ConnectionStore | SecretBox> =
  Effect.gen(function* () {
    const store = yield* ConnectionStore
    const box = yield* SecretBox
    const failed: Array<Reencrypted["failed"][number]> = []
    let count = 0
    let after: string | undefined
    while (true) {
      const page: Effect.Success<ReturnType<typeof store.withSecret>> = yield* store.withSecret(after)
      const last = page.at(-1)
      if (last === undefined) return { count, failed }
      after = last.id
      for (const { connection, id } of page) {
        const problem = connection === undefined ? unknown(id) : yield* again(store, box, connection)
        if (problem === undefined) count += 1
        else failed.push({ id, connection, problem })
      }
    }
  })

const again = (
  store: ConnectionStore["Service"],
  box: SecretBox["Service"],
  connection: Connection
): Effect.Effect<SourceProblem | undefined> =>
  SecretAccess.make(store, box, connection)
    .rotated((next) => Effect.succeed({ value: undefined, next }))
    .pipe(Effect.catch(Effect.succeed))

const unknown = (id: string) =>
  new SecretUnreadable({
    connection: id,
    detail: "belongs to a connection that this version cannot read",
    remedy: "Update this host, or remove the connection"
  })
