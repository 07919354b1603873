/**
 * Which database, from the words of a URL.
 *
 * A URL may hold a password, so it is taken apart once and is `Redacted` from then on; what names a database in an
 * error has no user, no password and no options.
 */
import { Redacted, Result, Schema } from "effect"
import { resolve } from "node:path"

export type DatabaseAddress =
  | { readonly _tag: "Sqlite"; readonly path: string }
  | {
      readonly _tag: "Postgres"
      readonly url: Redacted.Redacted<string>
      /** `postgres://host:port/database`. */
      readonly name: string
    }

/** The database cannot be used. Neither text ever holds a password. */
export class DatabaseUnavailable extends Schema.TaggedError<DatabaseUnavailable>()("DatabaseUnavailable", {
  what: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `${this.what}. ${this.remedy}`
  }
}

/**
 * `sqlite:///absolute/path`, a path that begins with `/` or `.`, or `postgres://user:password@host:port/database` with
 * the options of libpq. Of a text that is none of them nothing is repeated: it may be a URL with a slip in it.
 */
export const parse = (text: string): Result.Result<DatabaseAddress, DatabaseUnavailable> => {
  if (/^postgres(?:ql)?:\/\//u.test(text)) return postgresOf(text)
  const path = text.startsWith("sqlite:///") ? decoded(text.slice("sqlite://".length)) : text
  return path !== undefined && /^\.{0,2}\//u.test(path) && !path.includes("\0")
    ? Result.succeed({ _tag: "Sqlite", path: resolve(path) })
    : Result.fail(
        new DatabaseUnavailable({
          what: "the database's URL is not understood",
          remedy: "Write sqlite:///absolute/path, a path, or postgres://user:password@host:5432/database"
        })
      )
}

/** What a database is called in messages. */
export const nameOf = (address: DatabaseAddress): string =>
  address._tag === "Sqlite" ? address.path : address.name

const decoded = (text: string): string | undefined => {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}

const broken = () =>
  new DatabaseUnavailable({
    what: "the database's URL cannot be read",
    remedy:
      "Write postgres://user:password@host:5432/database, and in the password %40 for @, %2F for /, %3F for ?, %23 for #, %25 for %"
  })

/** An `@` behind host and port means that part of a password was taken for them: such a URL is shown to nobody. */
const postgresOf = (text: string): Result.Result<DatabaseAddress, DatabaseUnavailable> => {
  const behind = text.slice(text.indexOf("://") + 3).replace(/^[^#/?]*/u, "")
  if (behind.includes("@") || behind.includes("#") || !URL.canParse(text)) return Result.fail(broken())
  const { host, pathname, searchParams } = new URL(text)
  // A socket's directory is an option, or percent-encoded in the host's place.
  const server = searchParams.get("host") ?? decoded(host) ?? host
  return Result.succeed({
    _tag: "Postgres",
    url: Redacted.make(text, { label: "database URL" }),
    name: `postgres://${server}${pathname}`
  })
}
