/**
 * A registry of npm packages, PyPI projects and crates on this host, and a recorder of what it was asked for.
 *
 * Its packages are made by the test. Every answer can be replaced, such as by a redirect or one that never ends.
 */
import { Effect, type Scope } from "effect"
import { createHash } from "node:crypto"
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http"
import { crc32, gzipSync } from "node:zlib"
import * as LocalServer from "./LocalServer.ts"
import * as TarArchive from "./TarArchive.ts"

/** One received request. */
export interface Asked {
  readonly method: string
  /** With its query. */
  readonly path: string
  readonly headers: IncomingHttpHeaders
}

export interface PackageRegistry {
  /** Origin, without a slash at its end. */
  readonly origin: string
  readonly asked: ReadonlyArray<Asked>
  /** Answers a path, with its query, from now on. */
  readonly answer: (path: string, answer: Answer) => void
  /** Publishes a version on npm: its metadata at `/npm/<name>`. */
  readonly npm: (published: NpmVersion) => Buffer
  /** Publishes a wheel on PyPI: its index at `/simple/<name>/`, as JSON or HTML. */
  readonly pypi: (wheel: Wheel, options?: { readonly html?: boolean }) => Buffer
  /** Publishes a crate: its index below `/index`. */
  readonly crate: (crate: Crate) => Buffer
}

export interface Answer {
  readonly status?: number | undefined
  readonly headers?: Readonly<Record<string, string>> | undefined
  readonly body?: string | Buffer | undefined
  /** Sends this much of the body, and then nothing. */
  readonly silentAfter?: number | undefined
  /** Sends this much of the body, and closes the connection. */
  readonly cutAfter?: number | undefined
}

export interface NpmVersion {
  readonly name: string
  readonly version: string
  readonly dependencies?: Readonly<Record<string, string>> | undefined
  /** Replaces fields of `dist`. */
  readonly dist?: Readonly<Record<string, unknown>> | undefined
  readonly files?: Readonly<Record<string, string>> | undefined
}

export interface Wheel {
  readonly name: string
  readonly version: string
  readonly requires?: ReadonlyArray<string> | undefined
  /** Hash in the index instead of the wheel's own. */
  readonly sha256?: string | undefined
}

export interface Crate {
  readonly name: string
  readonly version: string
  readonly dependencies?: ReadonlyArray<string> | undefined
  readonly cksum?: string | undefined
}

const hex = (algorithm: string, bytes: Uint8Array) => createHash(algorithm).update(bytes).digest("hex")

/** A tar archive of files. */
export const tarOf = (files: Readonly<Record<string, string>>): Buffer =>
  TarArchive.of(...Object.entries(files).map(([name, content]) => ({ name, content })))

/** A zip archive of files, without compression. */
export const zipOf = (files: Readonly<Record<string, string>>): Buffer => {
  const locals: Array<Buffer> = []
  const entries: Array<Buffer> = []
  let offset = 0
  for (const [name, text] of Object.entries(files)) {
    const content = Buffer.from(text)
    const common = Buffer.alloc(26)
    common.writeUInt16LE(20, 0)
    common.writeUInt16LE(0x21, 8)
    common.writeUInt32LE(crc32(content), 10)
    common.writeUInt32LE(content.byteLength, 14)
    common.writeUInt32LE(content.byteLength, 18)
    common.writeUInt16LE(Buffer.byteLength(name), 22)
    const local = Buffer.concat([Buffer.from("PK\u0003\u0004"), common, Buffer.from(name), content])
    const rest = Buffer.alloc(14)
    rest.writeUInt32LE((0o100644 << 16) >>> 0, 6)
    rest.writeUInt32LE(offset, 10)
    entries.push(
      Buffer.concat([Buffer.from("PK\u0001\u0002\u0014\u0003", "latin1"), common, rest, Buffer.from(name)])
    )
    locals.push(local)
    offset += local.byteLength
  }
  const directory = Buffer.concat(entries)
  const end = Buffer.alloc(22)
  end.write("PK\u0005\u0006", 0, "latin1")
  end.writeUInt16LE(entries.length, 8)
  end.writeUInt16LE(entries.length, 10)
  end.writeUInt32LE(directory.byteLength, 12)
  end.writeUInt32LE(offset, 16)
  return Buffer.concat([...locals, directory, end])
}

/** Serves until the scope closes. */
export const acquire: Effect.Effect<PackageRegistry, never, Scope.Scope> = Effect.gen(function* () {
  const asked: Array<Asked> = []
  const answers = new Map<string, Answer>()
  const origin = yield* LocalServer.serve((request, response) => {
    const { headers, method = "", url = "" } = request
    asked.push({ method, path: url, headers })
    respond(request, response, answers.get(url) ?? { status: 404 })
  })
  const packuments = new Map<string, Record<string, unknown>>()
  const projects = new Map<string, Array<Record<string, unknown>>>()
  const crates = new Map<string, Array<string>>()
  const answer: PackageRegistry["answer"] = (path, given) => void answers.set(path, given)
  answer("/index/config.json", { body: JSON.stringify({ dl: `${origin}/crates`, api: origin }) })

  return {
    origin,
    asked,
    answer,
    npm: ({ dependencies = {}, dist = {}, files = {}, name, version }) => {
      const manifest = { name, version, dependencies }
      const tarball = gzipSync(
        tarOf({
          "package/package.json": JSON.stringify({ ...manifest, main: "index.js" }),
          "package/index.js": `module.exports = ${JSON.stringify(`${name}@${version}`)}\n`,
          ...files
        })
      )
      const file = `/npm/${name}/-/${name.split("/").at(-1)}-${version}.tgz`
      answer(file, { body: tarball })
      const integrity = `sha512-${createHash("sha512").update(tarball).digest("base64")}`
      const before = packuments.get(name)?.["versions"] as Record<string, unknown> | undefined
      const packument = {
        name,
        "dist-tags": { latest: version },
        versions: {
          ...before,
          [version]: {
            ...manifest,
            dist: { tarball: `${origin}${file}`, integrity, shasum: hex("sha1", tarball), ...dist }
          }
        }
      }
      packuments.set(name, packument)
      answer(`/npm/${name.replace("/", "%2f")}`, { body: JSON.stringify(packument) })
      return tarball
    },
    pypi: ({ name, requires = [], sha256, version }, { html = false } = {}) => {
      const module = name.replaceAll("-", "_")
      const info = `${module}-${version}.dist-info`
      const metadata = [
        "Metadata-Version: 2.1",
        `Name: ${name}`,
        `Version: ${version}`,
        ...requires.map((one) => `Requires-Dist: ${one}`),
        ""
      ].join("\n")
      const wheel = zipOf({
        [`${module}.py`]: `version = ${JSON.stringify(version)}\n`,
        [`${info}/METADATA`]: metadata,
        [`${info}/WHEEL`]: "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        [`${info}/RECORD`]: `${module}.py,,\n${info}/METADATA,,\n${info}/WHEEL,,\n${info}/RECORD,,\n`
      })
      const filename = `${module}-${version}-py3-none-any.whl`
      const place = `/files/ab/cd/${filename}`
      answer(place, { body: wheel })
      answer(`${place}.metadata`, { body: metadata })
      const files = projects.get(name) ?? []
      files.push({
        filename,
        url: `${origin}${place}`,
        hashes: { sha256: sha256 ?? hex("sha256", wheel) },
        "requires-python": ">=3.8",
        "core-metadata": { sha256: hex("sha256", Buffer.from(metadata)) }
      })
      projects.set(name, files)
      answer(
        `/simple/${name}/`,
        html ? { headers: { "content-type": "text/html" }, body: htmlOf(files) } : jsonOf(name, files)
      )
      return wheel
    },
    crate: ({ cksum, dependencies = [], name, version }) => {
      const manifest = [
        "[package]",
        `name = "${name}"`,
        `version = "${version}"`,
        'edition = "2021"',
        "[dependencies]",
        ...dependencies.map((one) => `${one} = "1"`),
        ""
      ].join("\n")
      const crate = gzipSync(
        tarOf({
          [`${name}-${version}/Cargo.toml`]: manifest,
          [`${name}-${version}/src/lib.rs`]: `pub fn version() -> &'static str { "${version}" }\n`
        })
      )
      answer(`/crates/${name}/${version}/download`, { body: crate })
      const line = JSON.stringify({
        name,
        vers: version,
        deps: dependencies.map((one) => ({
          name: one,
          req: "^1",
          features: [],
          optional: false,
          default_features: true,
          target: null,
          kind: "normal"
        })),
        cksum: cksum ?? hex("sha256", crate),
        features: {},
        yanked: false
      })
      const lines = [...(crates.get(name) ?? []), line]
      crates.set(name, lines)
      answer(`/index/${indexPathOf(name)}`, {
        headers: { "content-type": "text/plain" },
        body: `${lines.join("\n")}\n`
      })
      return crate
    }
  }
})

const jsonOf = (name: string, files: ReadonlyArray<unknown>): Answer => ({
  headers: { "content-type": "application/vnd.pypi.simple.v1+json" },
  body: JSON.stringify({ meta: { "api-version": "1.1" }, name, files })
})

const htmlOf = (files: ReadonlyArray<Record<string, unknown>>): string =>
  `<!DOCTYPE html><html><body>${files
    .map(({ filename, hashes, url }) => {
      const { sha256 } = hashes as { readonly sha256: string }
      return `<a href="${String(url)}#sha256=${sha256}" data-requires-python="&gt;=3.8">${String(filename)}</a><br/>`
    })
    .join("\n")}</body></html>`

const indexPathOf = (name: string): string =>
  name.length <= 2
    ? `${name.length}/${name}`
    : name.length === 3
      ? `3/${name[0]}/${name}`
      : `${name.slice(0, 2)}/${name.slice(2, 4)}/${name}`

const respond = (
  request: IncomingMessage,
  response: ServerResponse,
  { body = "", cutAfter, headers = {}, silentAfter, status = 200 }: Answer
): void => {
  const bytes = Buffer.from(body)
  request.resume()
  const short = silentAfter ?? cutAfter
  response.writeHead(status, { "content-length": String(bytes.byteLength), ...headers })
  if (short === undefined) return void response.end(bytes)
  response.write(bytes.subarray(0, short), () => {
    if (cutAfter !== undefined) response.destroy()
  })
}
