/**
 * Which runs fit on a host: its capacity, what a run needs, and the room that is reserved. Pure.
 *
 * A reservation lasts until its run begins or its time is over, so that a run that never arrives does not hold room.
 */
import { Schema } from "effect"
import { type HostNeeds, Label } from "../DurableRun.ts"

const positive = Schema.Finite.check(Schema.isGreaterThan(0))

/** The offer of a host. */
export const HostCapacity = Schema.Struct({
  /** Concurrent runs. */
  runsMax: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 10_000 })),
  cores: positive,
  memoryBytes: positive,
  labels: Schema.Array(Label).check(Schema.isMaxLength(32)),
  /** Graphs that the host's server offers. */
  graphIds: Schema.Array(Schema.String),
  /** Grants whose tokens the host has. */
  grantIds: Schema.Array(Schema.String)
})

export type HostCapacity = typeof HostCapacity.Type

/** A run that asks for a place. */
export interface Asked {
  readonly runId: string
  readonly graphId: string
  readonly grantId: string
  readonly needs: HostNeeds
}

interface Place {
  readonly needs: HostNeeds
  /** Time at which a reservation ends, in milliseconds. Absent: the run has begun. */
  readonly expiresAt?: number
}

/** The runs of a host. */
export interface Places {
  readonly isDraining: boolean
  /** No run is placed before this time, in milliseconds. */
  readonly closedUntil: number
  /** Grants of which no run is placed before a time, in milliseconds. */
  readonly closedGrants: ReadonlyMap<string, number>
  readonly runs: ReadonlyMap<string, Place>
  /** Graphs whose image was missing when the keeper was last asked. */
  readonly missingGraphIds: ReadonlyArray<string>
}

export const empty: Places = {
  isDraining: false,
  closedUntil: 0,
  closedGrants: new Map(),
  runs: new Map(),
  missingGraphIds: []
}

/** Most grants that are closed at a time. */
export const closedGrantsMax = 1000

/** Time for which a place is reserved for a run that has not arrived. */
export const reservedMillis = 60_000

/** Why a run does not fit. */
export type Misfit =
  | "Draining"
  | "Full"
  | "GrantFull"
  | "ImageMissing"
  | "NoSuchGraph"
  | "NoSuchGrant"
  | "LabelMissing"
  | "TooLarge"

/** Removes reservations whose time is over. */
const current = (places: Places, now: number): ReadonlyMap<string, Place> =>
  new Map([...places.runs].filter(([, { expiresAt }]) => expiresAt === undefined || expiresAt > now))

const sum = (runs: ReadonlyArray<Place>, of: (needs: HostNeeds) => number | undefined): number =>
  runs.reduce((total, { needs }) => total + (of(needs) ?? 0), 0)

/** Returns why a run does not fit on a host now, or `undefined` if it does. */
export const misfit = (
  capacity: HostCapacity,
  places: Places,
  { graphId, grantId, needs, runId }: Asked,
  now: number
): Misfit | undefined => {
  const { cores = 0, labels = [], memoryBytes = 0 } = needs
  if (!capacity.grantIds.includes(grantId)) return "NoSuchGrant"
  if (!capacity.graphIds.includes(graphId)) return "NoSuchGraph"
  if (!labels.every((label) => capacity.labels.includes(label))) return "LabelMissing"
  if (cores > capacity.cores || memoryBytes > capacity.memoryBytes) return "TooLarge"
  if (places.missingGraphIds.includes(graphId)) return "ImageMissing"
  if (places.isDraining) return "Draining"
  if (now < places.closedUntil) return "Full"
  if (now < (places.closedGrants.get(grantId) ?? 0)) return "GrantFull"
  const others = [...current(places, now)].filter(([id]) => id !== runId).map(([, place]) => place)
  const isFull =
    others.length >= capacity.runsMax ||
    sum(others, (its) => its.cores) + cores > capacity.cores ||
    sum(others, (its) => its.memoryBytes) + memoryBytes > capacity.memoryBytes
  return isFull ? "Full" : undefined
}

/** Returns whether a run without needs fits on a host now. */
export const hasRoom = ({ runsMax }: HostCapacity, places: Places, now: number): boolean =>
  !places.isDraining && now >= places.closedUntil && count(places, now) < runsMax

/** Reserves a place. A run that has one already keeps it. */
export const reserve = (places: Places, { needs, runId }: Asked, now: number): Places => {
  const runs = new Map(current(places, now))
  const before = runs.get(runId)
  const hasBegun = before !== undefined && before.expiresAt === undefined
  return hasBegun ? places : { ...places, runs: runs.set(runId, { needs, expiresAt: now + reservedMillis }) }
}

/** Marks that a run has begun. One without a reservation, such as after a restart of the worker, gets a place too. */
export const begin = (places: Places, runId: string, needs: HostNeeds): Places => ({
  ...places,
  runs: new Map(places.runs).set(runId, { needs })
})

/** Keeps the place of a run whose agent has ended, for the steps that follow at once on the same host. */
export const linger = (places: Places, runId: string, now: number): Places => {
  const place = places.runs.get(runId)
  if (place === undefined) return places
  const expiresAt = now + reservedMillis
  return { ...places, runs: new Map(places.runs).set(runId, { ...place, expiresAt }) }
}

/** Frees the place of a run. */
export const leave = (places: Places, runId: string): Places => ({
  ...places,
  runs: new Map([...places.runs].filter(([id]) => id !== runId))
})

/** Ends the reservation of a run that will not arrive. One that has begun keeps its place. */
export const giveBack = (places: Places, runId: string): Places =>
  places.runs.get(runId)?.expiresAt === undefined ? places : leave(places, runId)

/** Places no run until a time, in milliseconds: the host's server said that it is full. */
export const close = (places: Places, until: number): Places => ({ ...places, closedUntil: until })

/** Places no run of a grant until a time: the host's server said that this grant is at a limit of its own. */
export const closeGrant = (places: Places, grantId: string, until: number, now: number): Places => {
  const closed = [...places.closedGrants].filter(([id, its]) => id !== grantId && its > now)
  // The one that was closed first makes room.
  return { ...places, closedGrants: new Map([...closed.slice(1 - closedGrantsMax), [grantId, until]]) }
}

/** Sets the graphs of which no run is placed. */
export const lack = (places: Places, missingGraphIds: ReadonlyArray<string>): Places => ({
  ...places,
  missingGraphIds
})

/** Places no more runs. */
export const drain = (places: Places): Places => ({ ...places, isDraining: true })

/** Returns the number of runs that have begun or may still arrive. */
export const count = (places: Places, now: number): number => current(places, now).size
