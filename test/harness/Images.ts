/** The images that tests run: those that `./dev` built, by content hash. */
const named = (variable: string, fallback: string): string => process.env[variable] ?? fallback

export const runtime: string = named("COGNI_RUNTIME_IMAGE", "cogni-sandbox/runtime:latest")
export const proxy: string = named("COGNI_PROXY_IMAGE", "cogni-sandbox/proxy:latest")
export const gateway: string = named("COGNI_GATEWAY_IMAGE", "cogni-sandbox/gateway:latest")

/** An image that no engine has. */
export const absent = "cogni-sandbox/absent:none"

/** Returns the variable for the image of an agent, by its folder under `images/`. */
export const variableOf = (image: string): string => `COGNI_${image.toUpperCase().replaceAll("-", "_")}_IMAGE`

/** Returns the image of an agent, by the same folder. */
export const ofAgent = (image: string): string => named(variableOf(image), `cogni-sandbox/${image}:latest`)
