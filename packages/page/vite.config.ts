/** Builds the page that a server has at `/sandbox`. Nothing is inline, so that its policy can forbid what is inline. */
import { fileURLToPath } from "node:url"
import { defineConfig } from "vite"

export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  base: "/sandbox/",
  publicDir: false,
  build: {
    outDir: fileURLToPath(new URL("../server/dist/page", import.meta.url)),
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2000,
    target: "es2023",
    rolldownOptions: {
      // Modules say that they belong to the client. All of the page does.
      onLog: (level, log, show) => {
        if (log.code !== "MODULE_LEVEL_DIRECTIVE") show(level, log)
      }
    }
  }
})
