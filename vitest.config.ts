import { configDefaults, defineConfig } from "vitest/config"
import * as Pace from "./test/harness/Pace.ts"

const tests = ["packages/*/test/**/*.test.ts", "test/**/*.test.ts"]

/** These tests measure milliseconds and megabytes: no other test may run beside them. */
const alone = ["test/integration/BadInput.test.ts", "test/integration/HostileRequests.test.ts"]

export default defineConfig({
  test: {
    setupFiles: ["test/harness/setup.ts"],
    // Only a hang takes this long: a test must not fail because the machine is busy.
    testTimeout: Pace.hangMillis,
    hookTimeout: Pace.hangMillis,
    projects: [
      {
        extends: true,
        test: {
          name: "together",
          include: tests,
          exclude: [...configDefaults.exclude, ...alone],
          // Most tests wait for something other than a processor: an engine, a clock, a process.
          maxWorkers: 3,
          sequence: { groupOrder: 0 }
        }
      },
      {
        extends: true,
        test: { name: "alone", include: alone, maxWorkers: 1, sequence: { groupOrder: 1 } }
      }
    ]
  }
})
