// randomHex returns 32 random hexadecimal digits. crypto.randomUUID exists on https only.
export function randomHex() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}
