/**
 * Waits until `./dev test` has built the images and installed the programs that tests use. `vitest.config.ts` calls it
 * before each test file that may need them. Without `./dev`, they must be there.
 */
import { existsSync, readFileSync } from "node:fs"

/** Time limit for all images and programs, with slow downloads. */
const preparedMillisMax = 30 * 60_000

const pollMillis = 100

/** Whether the process that prepares them is there. Without its number, it counts as running. */
const isPreparing = () => {
  try {
    const id = Number(process.env["TESTS_PREPARING"] ?? process.pid)
    return process.kill(id, 0)
  } catch {
    return false
  }
}

/** File with the exit code, when all is done. */
const path = process.env["TESTS_PREPARED"]

if (path !== undefined) {
  for (let left = preparedMillisMax / pollMillis; !existsSync(path); left -= 1) {
    if (!isPreparing() && !existsSync(path))
      throw new Error(
        "what prepares images and programs was killed, as for want of memory. Run ./dev test again"
      )
    if (left < 0) throw new Error("images and programs took longer than 30 minutes. Run: ./dev images --all")
    await new Promise((resolve) => setTimeout(resolve, pollMillis))
  }
  const code = readFileSync(path, "utf8").trim()
  if (code !== "0")
    throw new Error(
      `an image or a program could not be prepared (exit code ${code}). See the output of ./dev above`
    )
}
