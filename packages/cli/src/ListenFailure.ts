/** Words for an address on which a server cannot listen. Pure. */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import { type Refusal, refusal } from "./Failure.ts"
import { oneLine } from "./TerminalText.ts"

/** Makes the refusal from what Node threw. `flag` chooses another port. */
export const refused = (
  { host, port }: { readonly host: string; readonly port: number },
  thrown: unknown,
  flag: "--metrics-port" | "--operator-port" | "--port"
): Refusal => {
  const address = `${host.includes(":") ? `[${oneLine(host)}]` : oneLine(host)}:${port}`
  return refusal(
    "unavailable",
    (thrown as NodeJS.ErrnoException | undefined)?.code === "EADDRINUSE"
      ? `another program listens on ${address}`
      : `cannot listen on ${address}: ${oneLine(messageOf(thrown))}`,
    `Choose another: ${flag} 0 takes any free port`
  )
}
