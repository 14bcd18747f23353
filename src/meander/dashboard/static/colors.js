// One colour per node. On several hosts, hosts have hues and their nodes are shades of them.

const HUES = [205, 28, 160, 320, 45, 265, 190, 5, 95, 235];

let known = new Map();
let hostsKnown = "";

/** Give colours to nodes: [[name, host], …]. What has a colour keeps it while its host stays. */
export function assign(nodes) {
  const hosts = [...new Set(nodes.map(([, host]) => host).filter(Boolean))].sort();
  const key = hosts.join("\n");
  if (key !== hostsKnown) { known = new Map(); hostsKnown = key; }
  const used = new Map();
  for (const {host} of known.values()) used.set(host, (used.get(host) || 0) + 1);
  for (const [name, host] of nodes) {
    if (known.has(name)) continue;
    if (hosts.length < 2) {
      const at = known.size;
      known.set(name, {host, hue: HUES[at % HUES.length], shade: Math.floor(at / HUES.length) % 3});
    } else {
      const nth = used.get(host) || 0;
      used.set(host, nth + 1);
      known.set(name, {host, hue: hostHue(hosts, host), shade: nth % 4});
    }
  }
  return hosts;
}

export const hostHue = (hosts, host) => {
  const at = Math.max(0, hosts.indexOf(host));
  return at < HUES.length ? HUES[at] : (at * 137.5) % 360;
};

export const isDark = () => {
  const told = document.documentElement.dataset.theme;
  return told ? told === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

const SHADES = {light: [48, 62, 38, 72], dark: [58, 70, 46, 78]};

function hash(text) {
  let found = 7;
  for (const letter of text) found = (found * 31 + letter.codePointAt(0)) >>> 0;
  return found;
}

export function color(name) {
  const it = known.get(name), dark = isDark();
  if (!it) return `hsl(${hash(name) % 360} 22% ${dark ? 50 : 62}%)`;  // it has left, or is yet to come
  return `hsl(${it.hue} 58% ${SHADES[dark ? "dark" : "light"][it.shade % 4]}%)`;
}

export const hueColor = (hue) => `hsl(${hue} 58% ${isDark() ? 58 : 48}%)`;
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
