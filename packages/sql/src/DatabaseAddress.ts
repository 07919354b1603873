/**
 * Parses the URL or path of a database.
 *
 * A URL may contain a password, so it is parsed once and is `Redacted` from then on. The name of a database in an error
 * contains no user, no password and no options.
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

/** The database is not usable. Neither text ever contains a password. */
export class DatabaseUnavailable extends Schema.TaggedError<DatabaseUnavailable>()("DatabaseUnavailable", {
  what: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `${this.what}. ${this.remedy}`
  }
}

/**
 * Parses `sqlite:///absolute/path`, a path that begins with `/`, `./` or `../`, or
 * `postgres://user:password@host:port/database` with the options of libpq. The error never repeats an invalid text,
 * which may be a URL with a typo and a password.
 */
export const parse = (text: string): Result.Result<DatabaseAddress, DatabaseUnavailable> => {
  if (/^postgres(?:ql)?:\/\//u.test(text)) return postgresOf(text)
  const path = text.startsWith("sqlite:///") ? decoded(text.slice("sqlite://".length)) : text
  return path !== undefined && /^\.{0,2}\//u.test(path) && !path.includes("\0")
    ? Result.succeed({ _tag: "Sqlite", path: resolve(path) })
    : Result.fail(
        new DatabaseUnavailable({
          what: "the database URL is invalid",
          remedy: "Write sqlite:///absolute/path, a path, or postgres://user:password@host:5432/database"
        })
      )
}

/** Returns the name of a database for messages. */
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
    what: "the database URL is malformed",
    remedy:
      "Write postgres://user:password@host:5432/database, and in the password %40 for @, %2F for /, %3F for ?, %23 for #, %25 for %"
  })

/** Parses a PostgreSQL URL. Refuses an `@` after host and port, which may then be part of a password. */
const postgresOf = (text: string): Result.Result<DatabaseAddress, DatabaseUnavailable> => {
  const behind = text.slice(text.indexOf("://") + 3).replace(/^[^#/?]*/u, "")
  if (behind.includes("@") || behind.includes("#") || !URL.canParse(text)) return Result.fail(broken())
  const { host, pathname, searchParams } = new URL(text)
  // A socket directory is the option `host`, or percent-encoded as the URL's host.
  const server = searchParams.get("host") ?? decoded(host) ?? host
  return Result.succeed({
    _tag: "Postgres",
    url: Redacted.make(text, { label: "database URL" }),
    name: `postgres://${server}${pathname}`
  })
}
