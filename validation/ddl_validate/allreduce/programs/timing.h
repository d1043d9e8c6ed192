/* The timing loop that all compiled programs of the benchmark share.
 *
 * Protocol: rank 0 writes one line for each event to standard output, `@ddl-bench ` and a JSON object. A time
 * is the maximum over the ranks, in seconds.
 *
 * {"event": "start", "library": text, "hosts": [name of each rank's host], "cores": [cores of each rank:
 * "0-3"]}
 *
 * {"event": "size", "bytes": n, "warmup": [seconds], "seconds": [seconds], "user": [seconds], "system":
 * [seconds]}
 *
 * "user" and "system" are processor seconds of a call, of all threads of all ranks together, one for each of
 * "seconds".
 *
 * {"event": "wrong", "bytes": n, "rank": r, "index": i, "got": text, "expected": text}
 *
 * {"event": "failed", "bytes": n, "rank": r, "code": c, "text": text}
 *
 * {"event": "end", "description": object or null, "abandoned": bool, larger sizes were left out}
 *
 * Exit code: 0, or 3 after a wrong sum, 4 after a failed call, 2 for arguments that cannot be read.
 */
#ifndef DDL_BENCH_TIMING_H
#define DDL_BENCH_TIMING_H

#include <stddef.h>

/* What is measured. allreduce sums count float32 values in place over all ranks of MPI_COMM_WORLD and returns
 * 0, or a code whose text error() gives. describe() is a JSON object for the end event; NULL stands for none.
 */
struct timing_subject {
  const char* library;
  int (*allreduce)(float* values, size_t count);
  const char* (*error)(int code);
  const char* (*describe)(void);
};

/* Measures what the arguments ask for, see timing.c. MPI must be initialised; returns the exit code on every
 * rank. */
int timing_run(int argc, char** argv, const struct timing_subject* subject);

/* Binds the process to the cores that DDL_BENCH_PLACES gives to its rank; nothing where the variable is not
 * set. Called first in main, so that every thread of the library inherits it. Returns 0, or an exit code
 * after a line on standard error. */
int timing_bind(void);

/* The cores that the calling thread may run on, as a list of ranges such as 0-3,8. */
void timing_cores(char* text, size_t length);

#endif
