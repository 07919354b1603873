/**
 * Translates between Prisma's two query protocols: the GraphQL of the Python client, and the JSON of the WASM engine.
 *
 * GraphQL values have no types of their own, so the types of the data model decide what a value becomes. Answers go
 * back in the form of the engine version that the Python client was made for.
 */
import { type FieldNode, Kind, type OperationDefinitionNode, parse, type ValueNode } from "graphql"

type Json = null | boolean | number | string | ReadonlyArray<Json> | { readonly [key: string]: Json }

type Fields = Readonly<Record<string, string>>

/** Type of each field of each model. */
export type Models = Readonly<Record<string, Fields>>

export interface Query {
  readonly modelName?: string | undefined
  readonly action: string
  readonly query: { readonly arguments: Json; readonly selection: Json }
}

export interface Translated {
  /** Name under which the client expects the answer. */
  readonly alias: string
  readonly query: Query
}

/** Reads the field types from the text of a schema. */
export const modelsOf = (schema: string): Models =>
  Object.fromEntries(
    [...schema.matchAll(/^model (\w+) \{([^]*?)^\}/gmu)].map(([, name, body]) => [
      name,
      Object.fromEntries([...body!.matchAll(/^\s+(\w+)\s+(\w+)/gmu)].map(([, field, type]) => [field, type]))
    ])
  )

const actions = [
  "createMany",
  "createOne",
  "deleteMany",
  "deleteOne",
  "updateMany",
  "updateOne",
  "upsertOne",
  "findMany",
  "aggregate",
  "groupBy"
]

const rawActions = new Set(["queryRaw", "executeRaw"])

/** Splits a name such as `findUniqueUserOrThrow`. */
const operationOf = (name: string): { readonly action: string; readonly modelName?: string } => {
  if (rawActions.has(name)) return { action: name }
  const found = /^(find(?:Unique|First))(.+?)(OrThrow)?$/u.exec(name)
  if (found !== null) return { action: `${found[1]}${found[3] ?? ""}`, modelName: found[2]! }
  const action = actions.find((one) => name.startsWith(one))
  if (action === undefined) throw new TypeError(`the engine has no operation ${name}`)
  return { action, modelName: name.slice(action.length) }
}

const literal = (node: ValueNode): Json => {
  switch (node.kind) {
    case Kind.INT:
      return Number.isSafeInteger(Number(node.value))
        ? Number(node.value)
        : { $type: "BigInt", value: node.value }
    case Kind.FLOAT:
      return Number(node.value)
    case Kind.STRING:
    case Kind.ENUM:
    case Kind.BOOLEAN:
      return node.value
    case Kind.NULL:
      return null
    case Kind.LIST:
      return node.values.map(literal)
    case Kind.OBJECT:
      return Object.fromEntries(node.fields.map(({ name, value }) => [name.value, literal(value)]))
    case Kind.VARIABLE:
      throw new TypeError("a query has a variable, which the client never sends")
  }
}

const isRecord = (value: Json): value is { readonly [key: string]: Json } =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const jsonOperators = new Set([
  "set",
  "push",
  "equals",
  "not",
  "lt",
  "lte",
  "gt",
  "gte",
  "array_contains",
  "array_starts_with",
  "array_ends_with"
])

/** Marks the texts of a JSON field: GraphQL has them as plain strings. */
const asJson = (value: Json): Json => {
  if (typeof value === "string") return { $type: "Json", value }
  if (Array.isArray(value)) return value.map(asJson)
  return isRecord(value)
    ? Object.fromEntries(
        Object.entries(value).map(([key, inner]) => [key, jsonOperators.has(key) ? asJson(inner) : inner])
      )
    : value
}

const withTypes = (value: Json, model: string, models: Models): Json => {
  if (Array.isArray(value)) return value.map((one) => withTypes(one, model, models))
  if (!isRecord(value) || "$type" in value) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => {
      const type = models[model]?.[key]
      if (type === "Json") return [key, asJson(inner)]
      return [key, withTypes(inner, type !== undefined && type in models ? type : model, models)]
    })
  )
}

const argumentsOf = ({ arguments: given }: FieldNode): { readonly [key: string]: Json } =>
  Object.fromEntries((given ?? []).map(({ name, value }) => [name.value, literal(value)]))

const fieldsOf = ({ selectionSet }: Pick<FieldNode, "selectionSet">): ReadonlyArray<FieldNode> =>
  (selectionSet?.selections ?? []).filter((one) => one.kind === Kind.FIELD)

const selectionOf = (node: FieldNode): Json =>
  Object.fromEntries(
    fieldsOf(node).map((field) => [
      field.name.value,
      field.selectionSet === undefined && (field.arguments ?? []).length === 0
        ? true
        : { arguments: argumentsOf(field), selection: selectionOf(field) }
    ])
  )

export const translate = (text: string, models: Models): Translated => {
  const [field] = fieldsOf(parse(text).definitions[0] as OperationDefinitionNode)
  if (field === undefined) throw new TypeError("a query without an operation")
  const { action, modelName } = operationOf(field.name.value)
  const given = argumentsOf(field)
  return {
    alias: field.alias?.value ?? field.name.value,
    query: {
      action,
      modelName,
      query: {
        arguments: modelName === undefined ? given : withTypes(given, modelName, models),
        selection: selectionOf(field)
      }
    }
  }
}

const cell = (type: string, value: Json): Json =>
  value === null
    ? { prisma__type: "null", prisma__value: null }
    : type.endsWith("-array") && Array.isArray(value)
      ? { prisma__type: "array", prisma__value: value.map((one) => cell(type.slice(0, -6), one)) }
      : {
          prisma__type: type,
          prisma__value: type === "json" && typeof value === "string" ? JSON.parse(value) : value
        }

interface RawRows {
  readonly columns: ReadonlyArray<string>
  readonly types: ReadonlyArray<string>
  readonly rows: ReadonlyArray<ReadonlyArray<Json>>
}

const isRawRows = (value: object): value is RawRows =>
  "columns" in value && "types" in value && "rows" in value

/** Turns an answer of the WASM engine into the form that the client reads. */
export const answerOf = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(answerOf)
  if (typeof value !== "object" || value === null) return value
  if ("$type" in value && "value" in value)
    return value.$type === "BigInt" ? Number(value.value) : value.value
  if (isRawRows(value))
    return value.rows.map((row) =>
      Object.fromEntries(row.map((one, at) => [value.columns[at], cell(value.types[at]!, one)]))
    )
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, answerOf(inner)]))
}
