/** Where a worker says what it does. */

/** What a worker logs to. console is one. */
export interface Logger {
  debug(message: string, ...more: unknown[]): void;
  info(message: string, ...more: unknown[]): void;
  warn(message: string, ...more: unknown[]): void;
  error(message: string, ...more: unknown[]): void;
}

const levels = ["debug", "info", "warn", "error"] as const;

export type Level = (typeof levels)[number];

/** Reports whether a word is a level. */
export function isLevel(word: string): word is Level {
  return (levels as readonly string[]).includes(word);
}

/** Writes lines of a level and above to standard error. */
export function stderrLogger(level: Level): Logger {
  const write = (of: Level) => (message: string, ...more: unknown[]) => {
    if (levels.indexOf(of) >= levels.indexOf(level)) console.error(`${new Date().toISOString()} ${of.toUpperCase()} ${message}`, ...more);
  };
  return { debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
}

/** Logs to another logger, whose failures cost the worker nothing. */
export function safely(logger: Logger): Logger {
  const guard = (level: Level) => (message: string, ...more: unknown[]) => {
    try {
      logger[level](message, ...more);
    } catch {
      // a text of an error that throws, say: there is no place left to tell it
    }
  };
  return { debug: guard("debug"), info: guard("info"), warn: guard("warn"), error: guard("error") };
}
