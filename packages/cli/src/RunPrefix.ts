/** Finds the run that a user means: by its ID, or by a prefix that no other one has. Pure. */
type Match<Id extends string> =
  | { readonly _tag: "Found"; readonly id: Id }
  | { readonly _tag: "None" }
  | { readonly _tag: "Several" }

export const match = <Id extends string>(typed: string, ids: ReadonlyArray<Id>): Match<Id> => {
  const exact = ids.find((id) => id === typed)
  const [only, another] =
    exact !== undefined ? [exact] : typed === "" ? [] : ids.filter((id) => id.startsWith(typed))
  if (only === undefined) return { _tag: "None" }
  return another === undefined ? { _tag: "Found", id: only } : { _tag: "Several" }
}
