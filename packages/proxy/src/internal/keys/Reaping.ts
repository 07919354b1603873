/** Deletes several keys. */
import { Effect } from "effect"

/** Deletes each key, and reports which are left. */
export const reapEach = <E>(
  aliases: ReadonlyArray<string>,
  remove: (alias: string) => Effect.Effect<void, E>
): Effect.Effect<{ readonly deleted: ReadonlyArray<string>; readonly left: ReadonlyArray<string> }> =>
  Effect.map(
    Effect.forEach(
      aliases,
      (alias) => Effect.map(Effect.result(remove(alias)), ({ _tag }) => ({ alias, _tag })),
      { concurrency: 4 }
    ),
    (all) => {
      const these = (tag: string) => all.filter(({ _tag }) => _tag === tag).map(({ alias }) => alias)
      return { deleted: these("Success"), left: these("Failure") }
    }
  )
