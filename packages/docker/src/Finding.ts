/** One thing that was looked at, how it is, and what to do. */

export interface Finding {
  readonly check: string
  readonly status: "ok" | "warn" | "fail"
  readonly detail: string
  /** What to do; absent when nothing is to be done. */
  readonly fix?: string | undefined
}

export const ok = (check: string, detail: string): Finding => ({ check, status: "ok", detail })

const amiss =
  (status: "warn" | "fail") =>
  (check: string, detail: string, fix: string): Finding => ({ check, status, detail, fix })

export const warn = amiss("warn")

export const fail = amiss("fail")
