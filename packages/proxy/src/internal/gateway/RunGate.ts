/**
 * The bounds of one run before anything it sends is parsed: connections and requests per second, and processor time.
 *
 * Pure, without a clock of its own. Every request counts: health checks, refused ones and those that are not HTTP.
 */
import * as Allowance from "../policy/Allowance.ts"

export interface RunGateOptions {
  readonly requestsPerSecondMax: number
  readonly connectionsPerSecondMax: number
  /** New connections that may come at once. */
  readonly connectionsMax: number
  /** Share of one processor that the run's requests may use, on average. */
  readonly processorShareMax: number
}

export interface RunGate {
  /** A new connection; false when there are too many and the socket should stop listening for a while. */
  readonly connected: (nowMillis: number) => boolean
  /** `slow`: answer that there are too many and stop reading the connection. `hang_up`: close it without an answer. */
  readonly arrived: (nowMillis: number) => "serve" | "slow" | "hang_up"
  /** Processor time that was used for the run. */
  readonly worked: (nowMillis: number, processorMillis: number) => void
  /** How long nothing of the run should be read, because it has used its processor time. */
  readonly pauseMillis: (nowMillis: number) => number
}

/** Answers per second that only say that there are too many requests. */
export const slowAnswersPerSecondMax = 50

/** Processor time that may be used at once: opening a run and a few large requests fit. */
export const processorBurstMillis = 400

/** A pause is at most this long: the run goes on slowly, its limits and its end are still seen. */
export const pauseMillisMax = 2000

export const make = (options: RunGateOptions): RunGate => {
  const requests = Allowance.make(options.requestsPerSecondMax)
  const slowAnswers = Allowance.make(slowAnswersPerSecondMax)
  const connections = Allowance.make(options.connectionsPerSecondMax, options.connectionsMax)
  const processor = Allowance.make(options.processorShareMax * 1000, processorBurstMillis)
  return {
    connected: (nowMillis) => connections.take(nowMillis),
    arrived: (nowMillis) => {
      if (requests.take(nowMillis)) return "serve"
      return slowAnswers.take(nowMillis) ? "slow" : "hang_up"
    },
    worked: (nowMillis, processorMillis) => processor.charge(nowMillis, processorMillis),
    pauseMillis: (nowMillis) => Math.min(pauseMillisMax, processor.waitMillis(nowMillis))
  }
}
