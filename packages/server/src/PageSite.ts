/** The built files of the page, which a package contains and a checkout builds. */
import { fileURLToPath } from "node:url"

/** Directory of the files. A checkout without a build does not have it, and its server then says so. */
export const directory: string = fileURLToPath(new URL("../dist/page", import.meta.url))
