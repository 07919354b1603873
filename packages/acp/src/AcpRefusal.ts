/**
 * Why the agent refuses a request of its client, or why a run failed.
 *
 * The client gets an error of JSON-RPC: each reason has one code, and `data.reason` is the part for programs.
 */
import { Schema } from "effect"
import { errorCodes } from "./internal/ErrorCodes.ts"

type Reason = keyof typeof errorCodes

export class AcpRefusal extends Schema.TaggedError<AcpRefusal>()("AcpRefusal", {
  reason: Schema.Literals(Object.keys(errorCodes) as [Reason, ...Array<Reason>]),
  detail: Schema.String,
  /** Sentence without its final period; empty if `detail` has the remedy. */
  remedy: Schema.String,
  /** More facts for programs, such as the ID of the run. They become part of `data`. */
  details: Schema.optionalKey(Schema.Record(Schema.String, Schema.Json))
}) {
  override get message(): string {
    return this.remedy === "" ? this.detail : `${this.detail}. ${this.remedy}`
  }
}
