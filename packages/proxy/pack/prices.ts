/**
 * Makes `PriceList.ts` from LiteLLM's map of prices, which is part of its Python package.
 *
 *     node packages/proxy/pack/prices.ts PATH/model_prices_and_context_window_backup.json VERSION [DATE]
 *
 * Keeps the models of the upstreams that a gateway calls directly, with their prices for tokens of text. A model whose
 * price depends on anything else than its tokens is left out. Prints a summary of what changed.
 */
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"

const [path, version, date = new Date().toISOString().slice(0, 10)] = process.argv.slice(2)
if (path === undefined || version === undefined || !/^\d+\.\d+\.\d+$/u.test(version))
  throw new Error("name the map and its version: node packages/proxy/pack/prices.ts PATH VERSION [DATE]")

type Model = Readonly<Record<string, unknown>>

const target = join(import.meta.dirname, "../src/internal/spend/PriceList.ts")
const modes = new Set<unknown>(["chat", "responses", "embedding"])

/** Profiles by LiteLLM's name of the provider, with the prefix that it adds to the names of models. */
const providers: Readonly<Record<string, readonly [profile: string, prefix: string]>> = {
  openai: ["openai", "openai/"],
  anthropic: ["anthropic", "anthropic/"],
  gemini: ["gemini", "gemini/"],
  openrouter: ["openrouter", "openrouter/"]
}

const perMillion = (value: unknown): string =>
  typeof value === "number" && Number.isFinite(value) && value >= 0
    ? String(Number((value * 1e6).toPrecision(12)))
    : "-"

/** Input tokens above which a model has another price; `-` if it has one price. */
const tierOf = (model: Model): string => {
  const tiers = Object.keys(model).flatMap((name) => {
    const [, thousands] = /^(?:input|output)_cost_per_token_above_(\d+)k_tokens$/u.exec(name) ?? []
    return thousands === undefined ? [] : [Number(thousands) * 1000]
  })
  return tiers.length === 0 ? "-" : String(Math.min(...tiers))
}

const lineOf = (name: string, model: Model): string =>
  [
    name,
    ...[
      "input_cost_per_token",
      "output_cost_per_token",
      "cache_read_input_token_cost",
      "cache_creation_input_token_cost",
      "cache_creation_input_token_cost_above_1hr"
    ].map((field) => perMillion(model[field])),
    tierOf(model)
  ].join(" ")

const map = JSON.parse(readFileSync(path, "utf8")) as Readonly<Record<string, Model>>
const lines = new Map<string, Map<string, string>>()
for (const [key, model] of Object.entries(map)) {
  const [profile, prefix] = providers[String(model["litellm_provider"])] ?? []
  if (profile === undefined || prefix === undefined || !modes.has(model["mode"])) continue
  const name = key.startsWith(prefix) ? key.slice(prefix.length) : key
  const line = lineOf(name, model)
  const [, input, output] = line.split(" ")
  const isOther = ["input_cost_per_request", "input_cost_per_character"].some(
    (field) => model[field] !== undefined
  )
  if (!/^[A-Za-z0-9._:/@-]{1,100}$/u.test(name) || input === "-" || output === "-" || isOther) continue
  const some = lines.get(profile) ?? new Map<string, string>()
  lines.set(profile, some.set(name, line))
}

const text = `/**
 * Public prices of models, as part of LiteLLM ${version} (MIT, copyright 2023 Berri AI), reduced by \`pack/prices.ts\`.
 *
 * Each line has the name of a model, and in US dollars per million tokens: input, output, read from a cache, written to
 * one, and written for an hour. The last column is the number of input tokens above which the price is another one.
 */
export const version = "${version}"

/** When the prices were read. */
export const date = "${date}"

export const lines = {
${[...lines]
  .map(
    ([profile, some]) =>
      `  ${profile}: [\n${[...some]
        .toSorted(([a], [b]) => (a < b ? -1 : 1))
        .map(([, line]) => `    "${line}"`)
        .join(",\n")}\n  ]`
  )
  .join(",\n")}
} as const
`
writeFileSync(target, text)
process.stdout.write(`${[...lines].map(([profile, some]) => `${profile}: ${some.size} models`).join("\n")}\n`)
