/** The images that tests run: what `./dev` built, by content hash. */
const named = (variable: string, fallback: string): string => process.env[variable] ?? fallback

export const runtime: string = named("COGNI_RUNTIME_IMAGE", "cogni-sandbox/runtime:latest")
export const proxy: string = named("COGNI_PROXY_IMAGE", "cogni-sandbox/proxy:latest")
export const gateway: string = named("COGNI_GATEWAY_IMAGE", "cogni-sandbox/gateway:latest")

/** On no engine. */
export const absent = "cogni-sandbox/absent:none"

/** Where the image of an agent is said, by its folder under `images/`. */
export const variableOf = (image: string): string => `COGNI_${image.toUpperCase().replaceAll("-", "_")}_IMAGE`

/** Of an agent, by that folder. */
export const ofAgent = (image: string): string => named(variableOf(image), `cogni-sandbox/${image}:latest`)
