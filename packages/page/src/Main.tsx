/** Entry of the page that a server has at `/sandbox`. */
import { createRoot } from "react-dom/client"
import { SandboxPage } from "./SandboxPage.tsx"

const root = document.querySelector("#root")
if (root === null) throw new Error("index.html has no element with the ID root")
createRoot(root).render(<SandboxPage />)
