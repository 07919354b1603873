/**
 * A model of durable runs on many hosts: the load on Temporal's server, and how runs find a host with room. Pure.
 *
 * The load is arithmetic over measured counts. Placement is a simulation, because waits and retries depend on each
 * other.
 */
import * as Samples from "./Samples.ts"

/** Costs of one run and of one host for the server of Temporal. The bench measures those of a run. */
export interface Costs {
  /** Events of one run, from its submission to its end. */
  readonly historyEvents: number
  readonly workflowTasks: number
  readonly activities: number
  /** Changes of the search attributes. */
  readonly visibilityChanges: number
  /** Heartbeats of one running run in a second. */
  readonly heartbeatsPerSecond: number
  /** Open polls of one host for activities and for workflow tasks, and how long the server keeps one without a task. */
  readonly activityPolls: number
  readonly workflowPolls: number
  readonly pollSeconds: number
  /** Partitions of a queue that all hosts share. */
  readonly partitions: number
}

/** Those of a run that its host places and whose commits are delivered. A test compares them with its history. */
export const costs: Costs = {
  historyEvents: 19,
  workflowTasks: 2,
  activities: 1,
  visibilityChanges: 3,
  heartbeatsPerSecond: 0.25,
  activityPolls: 3,
  workflowPolls: 2,
  pollSeconds: 60,
  partitions: 4
}

export interface Fleet {
  readonly hosts: number
  /** Places of each host, the share of them that is taken, and the mean duration of a run. */
  readonly runsMax: number
  readonly utilization: number
  readonly runSeconds: number
}

/** The load on the server, in each second unless it says otherwise. */
export interface ServerLoad {
  readonly running: number
  readonly runs: number
  readonly activityPolls: number
  readonly workflowPolls: number
  /** Open polls for workflow tasks on one partition of the shared queue. */
  readonly partitionPolls: number
  readonly workflowTasks: number
  readonly historyEvents: number
  readonly heartbeats: number
  /** Writes of the state of a workflow, without heartbeats. */
  readonly steps: number
  readonly writes: number
  readonly visibilityWrites: number
  /** Calls of the API: polls, answers and heartbeats. */
  readonly requests: number
  /** Gigabytes of histories in a day, with events of this size. */
  readonly gigabytesOfDay: number
}

/** Mean size of an event of our histories. The request is in two of them. */
const eventBytes = 1000

/** A worker takes a task, and answers it. Each changes the state of its workflow. */
const writesOfTask = 2

/** Returns the load of a fleet in equilibrium. */
export const load = ({ hosts, runSeconds, runsMax, utilization }: Fleet, costs: Costs): ServerLoad => {
  const running = hosts * runsMax * utilization
  const runs = running / runSeconds
  const heartbeats = running * costs.heartbeatsPerSecond
  const steps = runs * (1 + (costs.workflowTasks + costs.activities) * writesOfTask)
  const historyEvents = runs * costs.historyEvents
  return {
    running,
    runs,
    activityPolls: hosts * costs.activityPolls,
    workflowPolls: hosts * costs.workflowPolls,
    partitionPolls: (hosts * costs.workflowPolls) / costs.partitions,
    workflowTasks: runs * costs.workflowTasks,
    historyEvents,
    heartbeats,
    steps,
    writes: steps + heartbeats,
    // One when it starts and one when it ends.
    visibilityWrites: runs * (2 + costs.visibilityChanges),
    requests: steps + heartbeats + (hosts * (costs.activityPolls + costs.workflowPolls)) / costs.pollSeconds,
    gigabytesOfDay: (historyEvents * eventBytes * 86_400) / 1e9
  }
}

/** Limits of a server. */
export type Limits = Readonly<Partial<Record<keyof ServerLoad, number>>>

/** Defaults for each process of the frontend: `frontend.namespaceCount` and `frontend.namespaceRPS`. */
export const frontendLimits: Limits = { activityPolls: 1200, workflowPolls: 1200, requests: 2400 }

/** Defaults of a namespace of Temporal Cloud: requests. Each heartbeat that arrives also is an action that is paid. */
export const cloudLimits: Limits = { requests: 2000, heartbeats: 500 }

/** Returns the number of hosts at which each limit is reached, the lowest first. */
export const breaks = (
  fleet: Fleet,
  costs: Costs,
  limits: Limits
): ReadonlyArray<{ readonly name: keyof ServerLoad; readonly limit: number; readonly hosts: number }> => {
  // Every load is proportional to the hosts.
  const one = load({ ...fleet, hosts: 1 }, costs)
  return Object.entries(limits)
    .map(([name, limit]) => {
      const key = name as keyof ServerLoad
      return { name: key, limit, hosts: Math.floor(limit / one[key]) }
    })
    .toSorted((a, b) => a.hosts - b.hosts)
}

/**
 * How a run finds a host. `any`: an activity asks hosts whether they have room, and is repeated while they do not.
 * `withRoom`: the host that executes the workflow places the run if it has room and no other run waits. If not, it
 * waits in a queue that only hosts with room ask.
 */
export type Policy = "any" | "withRoom"

export interface PlacementAsked extends Fleet {
  readonly policy: Policy
  /** Runs that wait from the beginning. */
  readonly queued: number
  readonly seconds: number
  readonly seed: number
}

export interface PlacementFound {
  readonly placed: number
  /** Time from the submission to the placement. */
  readonly waitSeconds: Samples.Summary
  /** Share of the runs that were placed without another task. */
  readonly share: number
  /** Tasks that the server dispatched for placements, in a second. */
  readonly tasksPerSecond: number
  /** Share of the runs that were placed although an older one waited. */
  readonly overtaken: number
}

/** Repetitions of an activity: the first interval, its growth, and the longest. As in `SandboxAgentRun.ts`. */
const firstSeconds = 1
const growth = 1.5
const longestSeconds = 15

/** Time for an activity on its way over the server. */
const wayMillis = 10

/** A generator of numbers from 0 to 1: mulberry32. */
const randomOf = (seed: number) => {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

/** Events by their time, the earliest first. */
const heapOf = <A extends { readonly at: number }>() => {
  const all: Array<A> = []
  const swap = (a: number, b: number) => ([all[a], all[b]] = [all[b]!, all[a]!])
  return {
    push: (one: A) => {
      let at = all.push(one) - 1
      for (let up = (at - 1) >> 1; at > 0 && all[at]!.at < all[up]!.at; up = (at - 1) >> 1) {
        swap(at, up)
        at = up
      }
    },
    pop: (): A | undefined => {
      const first = all[0]
      const last = all.pop()
      if (all.length === 0 || last === undefined) return first
      all[0] = last
      for (let at = 0; ;) {
        const [left, right] = [2 * at + 1, 2 * at + 2]
        const least = right < all.length && all[right]!.at < all[left]!.at ? right : left
        if (least >= all.length || all[least]!.at >= all[at]!.at) return first
        swap(at, least)
        at = least
      }
    }
  }
}

interface Asking {
  readonly arrivedAt: number
  readonly tries: number
}

type Happening =
  | { readonly at: number; readonly is: "arrival" }
  | { readonly at: number; readonly is: "end"; readonly host: number }
  | { readonly at: number; readonly is: "asked"; readonly run: Asking }

/** Plays arrivals and ends of runs, and returns how they were placed. */
export const place = (asked: PlacementAsked): PlacementFound => {
  const { hosts, policy, queued, runSeconds, runsMax, seconds, seed, utilization } = asked
  const random = randomOf(seed)
  const exponential = (mean: number) => -Math.log(1 - random()) * mean
  const free = new Int32Array(hosts).fill(runsMax)
  /** Hosts with room, in any order, and the place of each among them. */
  const open = Array.from({ length: hosts }, (_, host) => host)
  const placeOf = Int32Array.from(open)
  const heap = heapOf<Happening>()
  const waits: Array<number> = []
  const queue: Array<Asking> = []
  /** Arrivals of runs that ask again and again, by the time of their arrival. */
  const asking = new Map<Asking, true>()
  let queueHead = 0
  let here = 0
  let overtaken = 0
  let tasks = 0

  const take = (host: number, at: number) => {
    free[host]! -= 1
    if (free[host] === 0) {
      const last = open.pop()!
      if (last !== host) {
        open[placeOf[host]!] = last
        placeOf[last] = placeOf[host]!
      }
    }
    heap.push({ at: at + exponential(runSeconds), is: "end", host })
  }
  const placed = (run: Asking, host: number, at: number, isOlderWaiting: boolean) => {
    take(host, at)
    waits.push(at - run.arrivedAt)
    if (isOlderWaiting) overtaken += 1
  }
  const anyHost = () => Math.floor(random() * hosts)
  /** The oldest run that still waits arrived before this one. */
  const isOlderWaiting = (run: Asking): boolean => {
    if (policy === "withRoom") return queueHead < queue.length && queue[queueHead]!.arrivedAt < run.arrivedAt
    const oldest = asking.keys().next()
    return oldest.done !== true && oldest.value.arrivedAt < run.arrivedAt
  }
  const retry = (run: Asking, at: number) => {
    const again = { arrivedAt: run.arrivedAt, tries: run.tries + 1 }
    asking.set(again, true)
    const pause = Math.min(longestSeconds, firstSeconds * growth ** run.tries)
    heap.push({ at: at + pause, is: "asked", run: again })
  }
  const ask = (run: Asking, at: number) => {
    tasks += 1
    asking.delete(run)
    const host = anyHost()
    if (free[host]! > 0) placed(run, host, at + wayMillis / 1000, isOlderWaiting(run))
    else retry(run, at)
  }
  /** Gives waiting runs to hosts with room. */
  const serve = (at: number) => {
    while (queueHead < queue.length && open.length > 0) {
      tasks += 1
      const host = open[Math.floor(random() * open.length)]!
      placed(queue[queueHead++]!, host, at + wayMillis / 1000, false)
    }
  }
  const arrive = (at: number) => {
    const run = { arrivedAt: at, tries: 0 }
    if (policy === "any") return ask(run, at)
    const host = anyHost()
    if (free[host]! > 0 && queueHead === queue.length) {
      here += 1
      return placed(run, host, at, false)
    }
    queue.push(run)
    serve(at)
  }

  // In equilibrium from the beginning.
  for (let taken = Math.round(hosts * runsMax * utilization); taken > 0; taken--)
    take(open[Math.floor(random() * open.length)]!, 0)
  for (let index = 0; index < queued; index++) arrive(0)
  const meanGap = runSeconds / (hosts * runsMax * utilization)
  heap.push({ at: exponential(meanGap), is: "arrival" })
  for (let next = heap.pop(); next !== undefined && next.at <= seconds; next = heap.pop()) {
    if (next.is === "arrival") {
      arrive(next.at)
      heap.push({ at: next.at + exponential(meanGap), is: "arrival" })
    } else if (next.is === "asked") ask(next.run, next.at)
    else {
      const before = free[next.host]!
      if (before === 0) placeOf[next.host] = open.push(next.host) - 1
      free[next.host] = before + 1
      if (policy === "withRoom") serve(next.at)
    }
  }
  return {
    placed: waits.length,
    waitSeconds: Samples.summarize(waits),
    share: waits.length === 0 ? 0 : here / waits.length,
    tasksPerSecond: tasks / seconds,
    overtaken: waits.length === 0 ? 0 : overtaken / waits.length
  }
}
