import { Effect } from "effect"
import * as C from "./Contenders.ts"
import * as U from "./Upstreams.ts"
import { mkdtempSync } from "node:fs"
const [kind, n, rounds] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])]
const img = { runtime: "cogni-sandbox/runtime:latest", proxy: "cogni-sandbox/proxy:latest" }
await Effect.runPromise(Effect.gen(function* () {
  const dir = mkdtempSync("/tmp/cogni-prof-")
  const c = kind === "c" ? yield* C.sealed(dir, img.runtime) : yield* C.sealedWithModel(dir, img, yield* U.onHost)
  for (let r = 0; r < rounds; r++) {
    const t = performance.now(), cpu = process.cpuUsage()
    const all = yield* Effect.promise(() => Promise.all(Array.from({ length: n }, () => c())))
    const u = process.cpuUsage(cpu)
    console.log(r, (performance.now() - t).toFixed(0), "cpu user", (u.user / 1000).toFixed(0), "sys", (u.system / 1000).toFixed(0), JSON.stringify(all[0], (k, v) => typeof v === "number" ? Math.round(v) : v))
  }
}).pipe(Effect.scoped))
process.exit(0)
