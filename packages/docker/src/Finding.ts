/** The result of one check of the doctor: a status, a detail and a fix. */

export interface Finding {
  readonly check: string
  readonly status: "ok" | "warn" | "fail"
  readonly detail: string
  /** Instruction to the operator. Absent when no action is needed. */
  readonly fix?: string | undefined
}

export const ok = (check: string, detail: string): Finding => ({ check, status: "ok", detail })

const amiss =
  (status: "warn" | "fail") =>
  (check: string, detail: string, fix: string): Finding => ({ check, status, detail, fix })

export const warn = amiss("warn")

export const fail = amiss("fail")
