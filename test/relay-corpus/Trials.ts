/** Groups the corpus for expensive tests: compatible attacks share one workspace. */
import type { Attack, Workspace } from "./Corpus.ts"
import { work } from "./Making.ts"

/** Workspaces that are tested in one clone. Most trials have only one. */
export interface Trial {
  readonly name: string
  readonly attack: Attack
  readonly benign: boolean
  readonly wants: Workspace["wants"]
  readonly make: Workspace["make"]
}

/** Maximum number of compatible attacks in one workspace. None of them may work. */
const together = 6

const trialOf = (workspaces: ReadonlyArray<Workspace>): Trial => {
  const [first] = workspaces
  const make: Trial["make"] = async (context) => {
    const tip = await work(context)
    for (const { spoil } of workspaces) spoil?.(context)
    return tip
  }
  return {
    ...first!,
    benign: first!.benign === true,
    name: workspaces.map(({ name }) => name).join("; "),
    make: workspaces.length === 1 ? first!.make : make
  }
}

export const trialsOf = (workspaces: ReadonlyArray<Workspace>): ReadonlyArray<Trial> => {
  const groups = new Map<string, Array<Array<Workspace>>>()
  for (const one of workspaces) {
    const key = one.spoil === undefined ? one.name : `${one.attack} ${one.wants}`
    const group = groups.get(key) ?? []
    groups.set(key, group)
    const last = group.at(-1)
    if (last === undefined || last.length === together) group.push([one])
    else last.push(one)
  }
  return [...groups.values()].flat().map(trialOf)
}
