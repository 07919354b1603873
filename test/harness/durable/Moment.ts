/**
 * A moment of a worker: a request to Temporal or to its keeper, or an event of a run. A test stops the time of a worker
 * at a moment, and kills it there.
 */

export interface Moment {
  readonly server: "temporal" | "keeper"
  /** Name of the call, such as `RespondActivityTaskCompleted` or `POST /runs`, or `event` for an event of a run. */
  readonly call: string
  /** `asked`: the request has not reached the server. `answered`: the answer has not reached the worker. */
  readonly when: "asked" | "answered"
  /** The request or the answer, as text. It may have binary parts. */
  readonly text: string
}

/**
 * Called at each moment. The time of the worker stands until the promise settles, with `true` if a request of a dead
 * worker still arrives. `undefined`: it goes on.
 */
export type Watch = (moment: Moment) => Promise<boolean> | undefined

/** A moment that a test waits for. */
export interface Point {
  readonly name: string
  readonly isAt: (moment: Moment) => boolean
  /** Counted from 1 among the moments that fit, since the point was set. */
  readonly index: number
  /** The request arrives after the worker has died. */
  readonly isLate?: boolean
}

const point = (moment: Omit<Moment, "text">, has: ReadonlyArray<string>, index = 1): Point => ({
  name: [moment.call, ...has.map((text) => text.trim()), moment.when, ...(index === 1 ? [] : [index])].join(
    " "
  ),
  isAt: ({ call, server, text, when }) =>
    server === moment.server &&
    call === moment.call &&
    when === moment.when &&
    has.every((one) => text.includes(one)),
  index
})

/** A call of Temporal whose request or answer has these texts. */
export const temporal = (call: string, when: Moment["when"], ...has: ReadonlyArray<string>): Point =>
  point({ server: "temporal", call, when }, has)

/** A request to the keeper, such as `GET /runs/ID`. */
export const keeper = (call: string, when: Moment["when"], index = 1): Point =>
  point({ server: "keeper", call, when }, [], index)

/** The moment before the worker receives an event of its run. */
export const event = (type: string, index = 1): Point =>
  point({ server: "keeper", call: "event", when: "answered" }, [`event: ${type}\n`], index)

/** The same point, but the request of the dead worker arrives after it. */
export const late = (at: Point): Point => ({ ...at, name: `${at.name}, and sent late`, isLate: true })

/** Watches for one point at a time. */
export const watcher = () => {
  let wanted: { readonly at: Point; left: number; readonly reached: () => void } | undefined
  const held: Array<() => void> = []
  const watch: Watch = (moment) => {
    if (wanted?.at.isAt(moment) !== true) return undefined
    wanted.left -= 1
    if (wanted.left > 0) return undefined
    const { at, reached } = wanted
    wanted = undefined
    reached()
    return new Promise((resolve) => {
      held.push(() => resolve(at.isLate === true))
    })
  }
  return {
    watch,
    /** Settles when the worker is at the point. It stays there until `release`. */
    stop: (at: Point): Promise<void> =>
      new Promise((resolve) => {
        wanted = { at, left: at.index, reached: resolve }
      }),
    release: (): void => {
      for (const letGo of held.splice(0)) letGo()
    }
  }
}
