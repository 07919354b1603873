/**
 * `POST /v1/embeddings` of a scripted model API, in OpenAI's format.
 *
 * A vector is made from the words of its text, so it is the same in every process, and texts that share words are
 * similar. No script changes it.
 */
import { Result } from "effect"
import { createHash } from "node:crypto"
import { type Body, pieces } from "./Script.ts"

export const path = "/v1/embeddings"

/** Numbers of a vector unless the request has `dimensions`. */
const dimensionsDefault = 1536

const dimensionsMax = 4096

/** Limit on the inputs of one request: OpenAI's. */
const inputsMax = 2048

/** Limit on the numbers of one answer: 2048 vectors of 1536 fit. */
const numbersMax = inputsMax * dimensionsDefault

/** An error as the API reports it, with status 400. */
interface EmbeddingError {
  readonly message: string
  readonly param: string
}

interface Embedded {
  readonly answer: Body
  /** One for each word, or for each number of an input that is tokens. */
  readonly inputTokens: number
}

/** Answers a request, or says why it is invalid. */
export const embed = (body: Body, only: string | undefined): Result.Result<Embedded, EmbeddingError> => {
  const { dimensions = dimensionsDefault, encoding_format: format = "float", input, model } = body
  if (typeof model !== "string" || model === "") return wrong("model", "must be the name of a model")
  const inputs = inputsOf(input)
  if (inputs === undefined)
    return wrong("input", "must be a string or tokens, or a list of 1 to 2048 of them, and none may be empty")
  if (format !== "float" && format !== "base64") return wrong("encoding_format", "must be float or base64")
  if (!isWhole(dimensions, 1) || dimensions > dimensionsMax)
    return wrong("dimensions", `must be a whole number from 1 to ${dimensionsMax}`)
  if (inputs.length * dimensions > numbersMax)
    return wrong(
      "input",
      `has too many items for vectors of ${dimensions} numbers: at most ${numbersMax} numbers`
    )
  const data = inputs.map((tokens, index) => {
    const vector = vectorOf(tokens, dimensions)
    return { object: "embedding", index, embedding: format === "float" ? [...vector] : base64Of(vector) }
  })
  const inputTokens = inputs.reduce((total, tokens) => total + tokens.length, 0)
  return Result.succeed({
    answer: {
      object: "list",
      data,
      model: only ?? model,
      usage: { prompt_tokens: inputTokens, total_tokens: inputTokens }
    },
    inputTokens
  })
}

const wrong = (param: string, problem: string) => Result.fail({ message: `'${param}' ${problem}`, param })

const isWhole = (value: unknown, minimum: number): value is number =>
  Number.isInteger(value) && (value as number) >= minimum

/** Tokens of each input: of a text its words. Undefined if the input is invalid. */
const inputsOf = (input: unknown): ReadonlyArray<ReadonlyArray<string>> | undefined => {
  const isOne = typeof input === "string" || (Array.isArray(input) && isWhole(input[0], 0))
  const list: ReadonlyArray<unknown> = isOne ? [input] : Array.isArray(input) ? input : []
  const inputs = list.flatMap((one) => tokensOf(one) ?? [])
  return inputs.length === list.length && inputs.length > 0 && inputs.length <= inputsMax ? inputs : undefined
}

/** In a list, so that callers can flatten it. */
const tokensOf = (one: unknown): [ReadonlyArray<string>] | undefined => {
  if (typeof one === "string") return one === "" ? undefined : [pieces(one)]
  return Array.isArray(one) && one.length > 0 && one.every((token) => isWhole(token, 0))
    ? [one.map(String)]
    : undefined
}

/** Each token adds 1 or -1 at eight places that its hash chooses. The length of the vector is 1. */
const vectorOf = (tokens: ReadonlyArray<string>, dimensions: number): Float32Array => {
  const sums = new Float32Array(dimensions)
  for (const token of tokens) {
    const hash = createHash("sha256").update(token.trim().toLowerCase()).digest()
    for (let at = 0; at < hash.length; at += 4) {
      const bits = hash.readUInt32LE(at)
      sums[(bits >>> 1) % dimensions]! += bits % 2 === 0 ? 1 : -1
    }
  }
  // Places can cancel each other out.
  const length = Math.hypot(...sums)
  if (length === 0) sums[0] = 1
  return sums.map((sum) => sum / (length || 1))
}

/** Little-endian numbers of 32 bits, as the clients of OpenAI read them. */
const base64Of = (vector: Float32Array): string => {
  const bytes = Buffer.alloc(vector.length * 4)
  vector.forEach((value, index) => bytes.writeFloatLE(value, index * 4))
  return bytes.toString("base64")
}
