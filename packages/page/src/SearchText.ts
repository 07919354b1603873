/** The query of an address as texts, in which each value is what it looks like. Pure. */

/** Reads a query. The first of several values with one name counts. */
export const parse = (search: string): Record<string, string> =>
  Object.fromEntries([...new URLSearchParams(search)].toReversed())

/** Writes a query, with its question mark unless it is empty. */
export const stringify = (search: Readonly<Record<string, unknown>>): string => {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(search)) {
    // Half a character cannot be encoded.
    if (typeof value === "string") query.append(name, value.toWellFormed())
  }
  return query.size === 0 ? "" : `?${query}`
}
