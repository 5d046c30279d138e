export const pause = (ms) => new Promise((done) => setTimeout(done, ms));
