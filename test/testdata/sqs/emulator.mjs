// The emulator fauxqs, in memory: node emulator.mjs HOME PORT
import { pathToFileURL } from "node:url";

const { startFauxqs } = await import(pathToFileURL(process.argv[2] + "/node_modules/fauxqs/dist/app.js"));
await startFauxqs({ port: Number(process.argv[3]), host: "127.0.0.1", logger: false });
console.log("ready");
