/** The error of a call whose host or sandbox is closed. */
import { Data } from "effect"

/** The call was made after its host or sandbox was closed, or was ended by that. */
export class Closed extends Data.TaggedError("Closed")<{ readonly what: "host" | "sandbox" }> {
  override get message(): string {
    return `the ${this.what} is closed. Create another one`
  }
}
