/** Why a push is refused if its origin cannot be used: by the origin's fault, never by its text. */
import { assert, describe, it } from "@effect/vitest"
import { OriginFault, OriginUnavailable } from "../src/GitRelayError.ts"
import * as PushRefusal from "../src/internal/origin/PushRefusal.ts"

const expected: Partial<Record<OriginFault, string>> = {
  unknown_host: "unreachable",
  unreachable: "unreachable",
  tls: "unreachable",
  unauthorized: "unauthorized",
  forbidden: "forbidden",
  not_found: "not_found",
  timeout: "timeout"
}

describe("the refusal of a push", () => {
  it.each(OriginFault.literals)("has the fault of an origin that is %s, whatever its text", (fault) => {
    // The text names other faults.
    for (const detail of ["has an address that is private", "does not exist (certificate, GH006, 403)"]) {
      const error = new OriginUnavailable({ fault, detail, remedy: "do this", isRetryable: true })
      const { fault: refused, ...rest } = PushRefusal.ofOrigin(error)
      assert.strictEqual(refused, expected[fault] ?? "rejected")
      assert.containSubset(rest, { detail: `the origin ${detail}`, remedy: "do this", isRetryable: true })
    }
  })
})
