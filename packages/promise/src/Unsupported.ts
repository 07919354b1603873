/** The error of an operation that a sealed sandbox does not have, for adapters to the interfaces of other libraries. */
import { Data } from "effect"

/** A sandbox does not support this operation, so nothing was done. */
export class Unsupported extends Data.TaggedError("Unsupported")<{
  /** Name of the operation, as the other library calls it. */
  readonly operation: string
  /** Why it is not possible, and what is possible instead. */
  readonly reason: string
}> {
  override get message(): string {
    return `${this.operation} is not supported: ${this.reason}`
  }
}
