/** `pnpm example NAME`: run one of the files beside this one. */
import { readdirSync } from "node:fs"
import { basename } from "node:path"

const names = readdirSync(import.meta.dirname)
  .filter((file) => file.endsWith(".ts") && file !== basename(import.meta.filename))
  .map((file) => basename(file, ".ts"))

const [name] = process.argv.slice(2)

if (name !== undefined && names.includes(name)) {
  await import(`./${name}.ts`)
} else {
  console.error(
    `${name === undefined ? "Name an example" : `There is no example ${name}`}: ${names.join(", ")}`
  )
  process.exitCode = 64
}
