/** What a request has beside what the platform's `Request` can hold. */
export interface Context {
  /** The correlation id, as in the server's log. */
  readonly id: bigint;
  /** Real time, nanoseconds since 1970. */
  readonly timeNs: bigint;
  /** 32 bytes that no other request has. */
  readonly random: Uint8Array;
  /** Path and query as the client sent them. */
  readonly target: string;
  /** The headers as pairs, duplicates apart, in their order; names in lower case. */
  readonly rawHeaders: ReadonlyArray<readonly [string, string]>;
  /** What the client speaks. */
  readonly httpVersion: '1.0' | '1.1' | '2';
  /** Trailers that are sent behind the response. */
  responseTrailers: Iterable<readonly [string, string]>;
  /** Sends an interim response (102 to 199), before the response itself. */
  inform(status: number, headers?: HeadersInit): void;
  /** The request's trailers. What was not read of its body is lost. */
  trailers(): Promise<Headers>;
}

/** Whether this process runs in a sandbox of Sandtide. */
export const inSandbox: boolean;

/**
 * Answers requests with what `handler(request)` returns. What it throws is told on standard error,
 * and the answer is 500.
 */
export function serve(handler: (request: Request) => Response | Promise<Response>): void;

/** What is known of a request that a handler of `serve` was given. */
export function context(request: Request): Context;
