/**
 * Published results of ComputeSDK's benchmark, in whole milliseconds.
 *
 * From `results/{sequential,staggered,burst}_tti/latest.json` of https://github.com/computesdk/benchmarks at the commit
 * below (MIT licence). Each row: median, p95 and p99 without the fastest and the slowest 5 %, and the percentage of
 * sandboxes that succeeded.
 */

export const source = {
  url: "https://github.com/computesdk/benchmarks",
  commit: "0a010e0",
  takenAt: "2026-05-05"
}

type Figures = readonly [median: number, p95: number, p99: number, succeededPercent: number]

export type Mode = "sequential" | "staggered" | "burst"

export const published: Readonly<Record<string, Readonly<Record<Mode, Figures>>>> = {
  archil: { sequential: [311, 483, 499, 100], staggered: [332, 444, 479, 100], burst: [623, 697, 719, 100] },
  blaxel: {
    sequential: [525, 568, 597, 100],
    staggered: [539, 606, 638, 100],
    burst: [1610, 1800, 1829, 100]
  },
  cloudflare: {
    sequential: [2056, 2969, 3476, 100],
    staggered: [2131, 3224, 3715, 100],
    burst: [2092, 3035, 3116, 100]
  },
  codesandbox: {
    sequential: [2486, 2784, 2903, 100],
    staggered: [2546, 3030, 3284, 100],
    burst: [6658, 9995, 10665, 100]
  },
  daytona: { sequential: [186, 492, 560, 100], staggered: [210, 446, 487, 100], burst: [367, 611, 741, 100] },
  declaw: { sequential: [42, 131, 160, 100], staggered: [44, 47, 48, 100], burst: [351, 487, 493, 100] },
  e2b: { sequential: [491, 685, 740, 100], staggered: [454, 675, 708, 100], burst: [822, 965, 1048, 100] },
  hopx: {
    sequential: [1422, 1746, 1790, 100],
    staggered: [1475, 2639, 2700, 99],
    burst: [15101, 15562, 15665, 99]
  },
  modal: {
    sequential: [1723, 2309, 2494, 100],
    staggered: [1711, 2027, 2243, 100],
    burst: [2261, 2943, 3023, 100]
  },
  namespace: {
    sequential: [1649, 1938, 3020, 99],
    staggered: [1657, 1992, 2464, 100],
    burst: [2218, 2532, 2590, 100]
  },
  runloop: {
    sequential: [1688, 1931, 1942, 100],
    staggered: [1859, 2065, 2174, 100],
    burst: [6662, 11196, 12483, 100]
  },
  upstash: {
    sequential: [386, 412, 422, 100],
    staggered: [361, 394, 400, 100],
    burst: [2091, 3918, 4015, 100]
  },
  vercel: {
    sequential: [671, 1062, 1315, 100],
    staggered: [641, 974, 1074, 100],
    burst: [832, 1308, 1323, 100]
  }
}
