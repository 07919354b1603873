/** Uses the server with ComputeSDK: `node examples/computesdk/client.ts URL TOKEN`, with what `server.ts` printed. */
import { compute } from "computesdk"
import { cogniSandbox } from "./provider.ts"

const [url = "http://127.0.0.1:8790", token = ""] = process.argv.slice(2)

compute.setConfig({ provider: cogniSandbox({ url, token }) })

const sandbox = await compute.sandbox.create({ envs: { GREETING: "hello" }, timeout: 300_000 })
try {
  const { stdout } = await sandbox.runCommand('echo "$GREETING from Node $(node -v)"')
  console.log(stdout)
} finally {
  await sandbox.destroy()
}
