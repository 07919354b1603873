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
    target: "es2023"
  }
})
