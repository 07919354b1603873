/**
 * Adds to Node's compile cache the functions that a run of OpenClaw has called. Node writes the code of a module before
 * it is evaluated, so without its functions: a run would compile ten thousand of them before its first model call.
 * Loaded with `--expose-internals` during the image build, into a run without a cache. COMPILED is the directory of the
 * cache to add to. Each file of it is a header of five numbers, and the code as V8 has written it.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { setFlagsFromString } from "node:v8"
import { isMainThread } from "node:worker_threads"
import { crc32 } from "node:zlib"

const require = createRequire(import.meta.url)
const { getOrInitializeCascadedLoader } = require("internal/modules/esm/loader")
const { compileSourceTextModule } = require("internal/modules/esm/utils")

const magic = 0x8adfdbb2
const headerBytes = 20
/** The start of code, which V8 compares before it takes it: its version, the source, and its flags. */
const comparedBytes = 16
/** Least growth of the cache. Without the functions, it would not grow at all. */
const growthMin = 1.2

/** Name of the file of a module: a checksum of its kind, which is 1, and of its address. */
const nameOf = (url) => crc32(url, crc32(Buffer.of(1))).toString(16)

/** Compiles a module again. V8 has the code of the same source, with the functions that were called since. */
const codeOf = (url, source, loader) => compileSourceTextModule(url, source, loader).createCachedData()

const addFunctions = () => {
  // V8 compares its flags with those that wrote the code.
  setFlagsFromString("--flush-bytecode")
  const loader = getOrInitializeCascadedLoader()
  let before = 0
  let after = 0
  for (const [url, byType] of loader.loadCache) {
    const file = `${process.env.COMPILED}/${nameOf(url)}`
    if (Object.values(byType)[0]?.module?.synthetic !== false || !existsSync(file)) continue
    const source = readFileSync(new URL(url), "utf8")
    const old = readFileSync(file)
    const code = codeOf(url, source, loader)
    const isKnown =
      old.readUInt32LE(0) === magic &&
      old.readUInt32LE(8) === old.length - headerBytes &&
      old.readUInt32LE(12) === crc32(source) &&
      old.readUInt32LE(16) === crc32(old.subarray(headerBytes)) &&
      old.subarray(headerBytes).compare(code, 0, comparedBytes, 0, comparedBytes) === 0
    if (!isKnown) throw new Error(`this version of Node writes its compile cache in another way: ${file}`)
    const header = Buffer.from(old.subarray(0, headerBytes))
    header.writeUInt32LE(code.length, 8)
    header.writeUInt32LE(crc32(code), 16)
    writeFileSync(file, Buffer.concat([header, code]))
    before += old.length
    after += headerBytes + code.length
  }
  console.log(`functions.mjs: ${before} bytes of code before, ${after} bytes with functions`)
  if (!(after > before * growthMin)) throw new Error("the functions of the run are not in the compile cache")
}

if (isMainThread) {
  // Functions that were not called for a while would be lost.
  setFlagsFromString("--no-flush-bytecode")
  process.once("exit", addFunctions)
}
