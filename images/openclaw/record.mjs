/**
 * Records which modules a run of OpenClaw loads, in its main thread, in its workers and in its child processes, with
 * which options it starts workers, which schemas a thread makes in memory, and when it collects its garbage. Loaded
 * into each thread by NODE_OPTIONS during the image build, it appends lines of JSON to a file for each.
 */
import { appendFileSync, writeFileSync } from "node:fs"
import { Session } from "node:inspector"
import { createRequire, registerHooks, syncBuiltinESMExports } from "node:module"
import { DatabaseSync } from "node:sqlite"
import { isMainThread, threadId } from "node:worker_threads"

const file = `${process.env.RECORD_DIRECTORY}/${process.pid}-${threadId}.jsonl`
const write = (value) => appendFileSync(file, `${JSON.stringify(value)}\n`)
writeFileSync(file, "")
write({ script: process.argv[1], isMain: isMainThread })
registerHooks({
  load: (url, context, next) => {
    const loaded = next(url, context)
    if (url.startsWith("file:")) write({ url })
    return loaded
  }
})
const { post } = Session.prototype
Session.prototype.post = function (method, ...others) {
  write({ inspector: method })
  return post.call(this, method, ...others)
}
const { exec } = DatabaseSync.prototype
DatabaseSync.prototype.exec = function (sql) {
  // A database in memory has no location.
  if (this.location() === null && sql.includes("CREATE TABLE")) write({ schema: sql })
  return exec.call(this, sql)
}
if (isMainThread) {
  const threads = createRequire(import.meta.url)("node:worker_threads")
  threads.Worker = new Proxy(threads.Worker, {
    construct: (target, [script, options = {}], created) => {
      const worker = Reflect.construct(target, [script, options], created)
      const { env: _env, ...others } = options
      write({ worker: String(script), threadId: worker.threadId, options: others })
      return worker
    }
  })
  syncBuiltinESMExports()
}
