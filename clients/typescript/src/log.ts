/** The logs of a worker. */

/** The logger of a worker; console is one. */
export interface Logger {
  debug(message: string, ...more: unknown[]): void;
  info(message: string, ...more: unknown[]): void;
  warn(message: string, ...more: unknown[]): void;
  error(message: string, ...more: unknown[]): void;
}

const levels = ["debug", "info", "warn", "error"] as const;

export type Level = (typeof levels)[number];

/** Reports whether a string is a level. */
export function isLevel(word: string): word is Level {
  return (levels as readonly string[]).includes(word);
}

/** Returns a logger that writes messages of a level and above to standard error. */
export function stderrLogger(level: Level): Logger {
  const write = (of: Level) => (message: string, ...more: unknown[]) => {
    if (levels.indexOf(of) >= levels.indexOf(level)) console.error(`${new Date().toISOString()} ${of.toUpperCase()} ${message}`, ...more);
  };
  return { debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
}

/** Returns a logger that ignores failures of another. */
export function safely(logger: Logger): Logger {
  const guard = (level: Level) => (message: string, ...more: unknown[]) => {
    try {
      const done: unknown = logger[level](message, ...more);
      if (done instanceof Promise) done.catch(() => {});
    } catch {
      // for example, formatting an error throws: there is nowhere left to report it
    }
  };
  return { debug: guard("debug"), info: guard("info"), warn: guard("warn"), error: guard("error") };
}
