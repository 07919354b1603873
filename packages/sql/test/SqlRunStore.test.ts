/** Tests `SqlRunStore` over a SQLite file: the contract, and the behavior common to all databases. */
import { RunStoreContract } from "@cogni/sandbox-core/testing"
import * as SqliteDatabase from "../src/SqliteDatabase.ts"
import { Effect, Layer } from "effect"
import { join } from "node:path"
import * as Behaviour from "./Behaviour.ts"
import * as Stores from "./Stores.ts"

RunStoreContract.suite("SQLite", Layer.unwrap(Effect.map(Stores.directory, (path) => Stores.sqlite(path))))

Behaviour.suite(
  "SQLite",
  Layer.effect(
    Behaviour.Database,
    Effect.map(Stores.directory, (path) => ({
      client: Layer.orDie(SqliteDatabase.layer({ path: join(path, "cogni.db") }))
    }))
  )
)
