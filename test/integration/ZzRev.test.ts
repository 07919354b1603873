import { layer } from "@effect/vitest"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { Effect } from "effect"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"
layer(RunHarness.layer(), { excludeTestServices: true, timeout: 200_000 })("x", (it) => {
  it.effect("5000", () => Effect.gen(function* () {
    const s = yield* SandboxRunner.use((r) => r.open({ image: Images.runtime }))
    const t: Array<number> = []
    const run = (n: number) => Effect.gen(function* () { for (let i = 0; i < n; i++) { const b = performance.now(); yield* s.exec(["true"]); t.push(performance.now() - b) } })
    yield* run(500); t.length = 0
    const heap = () => { (globalThis as any).gc?.(); return process.memoryUsage() }
    const a = heap(); yield* run(5000); const b = heap()
    t.sort((x, y) => x - y)
    const rss = (yield* s.exec("grep VmRSS /proc/1/status; ls -d /proc/[0-9]* | wc -l")).output.stdout.text
    console.log("p50", t[2500]?.toFixed(2), "p10", t[500]?.toFixed(2), "p95", t[4750]?.toFixed(2), "heapMB", (a.heapUsed / 1e6).toFixed(0), (b.heapUsed / 1e6).toFixed(0), "rssMB", (a.rss / 1e6).toFixed(0), (b.rss / 1e6).toFixed(0), rss.replaceAll("\n", " "))
    // a flood nobody reads, one byte at a time
    yield* Effect.forEach(Array.from({ length: 16 }), () => s.spawn(["perl", "-e", "syswrite STDOUT,'x' while 1"]))
    const c = heap(); yield* Effect.sleep("5 seconds"); const d = heap()
    console.log("unread floods heapMB", (c.heapUsed / 1e6).toFixed(0), (d.heapUsed / 1e6).toFixed(0), "rss", (c.rss / 1e6).toFixed(0), (d.rss / 1e6).toFixed(0))
    const e = performance.now(); yield* s.exec(["true"]); console.log("true beside floods", (performance.now() - e).toFixed(1))
  }).pipe(Effect.scoped), 200_000)
})
