/**
 * Limits of one run that apply before its input is parsed: connections and requests per second, and processor time.
 *
 * Pure, without its own clock. Every request counts: health checks, refused requests and input that is not HTTP.
 */
import * as Allowance from "../policy/Allowance.ts"

interface RunGateOptions {
  readonly requestsPerSecondMax: number
  readonly connectionsPerSecondMax: number
  /** Burst of new connections. */
  readonly connectionsMax: number
  /** Average share of one processor that the run's requests may use. */
  readonly processorShareMax: number
}

export interface RunGate {
  /** Counts a connection. Returns false if there are too many and the socket should stop listening for a while. */
  readonly connected: (nowMillis: number) => boolean
  /** Counts a request. `slow`: answer 429 and pause the connection. `hang_up`: close it without an answer. */
  readonly arrived: (nowMillis: number) => "serve" | "slow" | "hang_up"
  /** Charges processor time to the run. */
  readonly worked: (nowMillis: number, processorMillis: number) => void
  /** Returns how long to stop reading from the run, because it has exhausted its processor time. */
  readonly pauseMillis: (nowMillis: number) => number
}

/** Answers per second that only report too many requests. */
export const slowAnswersPerSecondMax = 50

/** Burst of processor time: enough to open a run and for a few large requests. */
export const processorBurstMillis = 400

/** Maximum pause: the run continues slowly, and its limits and its end are still noticed. */
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
