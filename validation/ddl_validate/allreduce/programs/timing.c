/* Arguments: SIZE[:BEST],... BUDGET LEAST MOST WARMUPS [RELATIVE ABSOLUTE]
 *
 * SIZE: bytes, a multiple of 4. BEST: seconds of the fastest so far; where this one is slow out of all
 * proportion to it, the sizes that follow are left out (0: never).
 *
 * BUDGET: seconds that the repetitions of one size may take, filling and checking included.
 *
 * LEAST: repetitions that are made even when the budget is spent. MOST: repetitions at most.
 *
 * WARMUPS: repetitions before those, kept apart; their number does not depend on how long they take. A list
 * with commas has one for each size; the last one counts for the sizes that follow.
 *
 * RELATIVE, ABSOLUTE: a sum may be off by RELATIVE x its right value + ABSOLUTE, where a subject rounds what
 * it sends (0, 0: not at all).
 */
#include "timing.h"

#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Values repeat after this many elements. They are small whole numbers, so that their sum is exact in float32
 * in any order, and they differ between ranks, elements and repetitions. */
enum { PERIOD = 1024, TEXT = 512 };

/* The sizes that follow are left out when this one took more than so many times BEST, and all of its calls,
 * or a call of the next size as expected, more than so many seconds. */
static const double ABANDONED = 10, ABANDONED_SECONDS = 10;

/* A repetition is as many calls as make up so many bytes, at least one, at most MOST_CALLS; its time is that
 * of one call. A shaper saves up for a burst of 128 KiB while nothing is sent: a peer whose barrier is slow
 * would have saved more than the others, and look faster, if small calls were timed one by one. */
enum { BYTES_A_REPETITION = 1 << 20, MOST_CALLS = 64 };

struct plan {
  double budget;
  long least, most, warmups;
  double relative, absolute;
};

/* One repetition. seconds: the slowest rank's time of a call. user, system: processor seconds of a call, of
 * all threads of all ranks together. */
struct sample {
  double seconds, user, system;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double in_seconds(struct timeval time) { return (double)time.tv_sec + 1e-6 * (double)time.tv_usec; }

/* Processor seconds of all threads of this process so far: [0] in user mode, [1] in the kernel. */
static void processor_seconds(double seconds[2]) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  seconds[0] = in_seconds(used.ru_utime);
  seconds[1] = in_seconds(used.ru_stime);
}

static float value_of(size_t index, int rank, long repetition) {
  return (float)((index + 3 * (size_t)rank + 5 * (size_t)repetition) % PERIOD);
}

static void fill(float* values, size_t count, int rank, long repetition) {
  float period[PERIOD];
  for (size_t i = 0; i < PERIOD; i++) period[i] = value_of(i, rank, repetition);
  for (size_t done = 0; done < count; done += PERIOD) {
    size_t part = count - done < PERIOD ? count - done : PERIOD;
    memcpy(values + done, period, part * sizeof *values);
  }
}

/* The index of the first wrong value, or count; its right value in *expected. */
static size_t first_wrong(const struct plan* plan, const float* values, size_t count, int size,
                          long repetition, double* expected) {
  float period[PERIOD];
  for (size_t i = 0; i < PERIOD; i++) {
    double sum = 0;
    for (int rank = 0; rank < size; rank++) sum += value_of(i, rank, repetition);
    period[i] = (float)sum;
  }
  for (size_t done = 0; done < count; done += PERIOD) {
    size_t part = count - done < PERIOD ? count - done : PERIOD;
    if (memcmp(values + done, period, part * sizeof *values) == 0) continue;
    for (size_t i = 0; i < part; i++) {
      /* written so that a NaN is wrong */
      if (!(fabs((double)values[done + i] - period[i]) <= plan->relative * period[i] + plan->absolute)) {
        *expected = period[i];
        return done + i;
      }
    }
  }
  return count;
}

static void print_text(const char* text) {
  putchar('"');
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') putchar('\\');
    if (c < 0x20)
      putchar(' ');
    else
      putchar(c);
  }
  putchar('"');
}

/* One member of the samples as a list; offset: of the member. */
static void print_samples(const char* name, const struct sample* samples, long count, size_t offset) {
  printf("\"%s\": [", name);
  for (long i = 0; i < count; i++) {
    double value;
    memcpy(&value, (const char*)&samples[i] + offset, sizeof value);
    printf("%s%.9g", i ? ", " : "", value);
  }
  printf("]");
}

/* Prints a list with a text of each rank; text: of this one, in a field of length bytes. Rank 0 alone prints.
 */
static void print_gathered(const char* name, const char* text, int length, int rank, int size) {
  char* all = rank ? NULL : calloc((size_t)size, (size_t)length);
  MPI_Gather(text, length, MPI_CHAR, all, length, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (rank) return;
  printf(", \"%s\": [", name);
  for (int i = 0; all && i < size; i++) {
    if (i) printf(", ");
    print_text(all + (size_t)i * (size_t)length);
  }
  printf("]");
  free(all);
}

static void print_start(const char* library, int rank, int size) {
  char name[MPI_MAX_PROCESSOR_NAME] = {0}, cores[TEXT] = {0};
  int length;
  MPI_Get_processor_name(name, &length);
  timing_cores(cores, sizeof cores);
  if (rank == 0) {
    printf("@ddl-bench {\"event\": \"start\", \"library\": ");
    print_text(library);
  }
  print_gathered("hosts", name, sizeof name, rank, size);
  print_gathered("cores", cores, sizeof cores, rank, size);
  if (rank) return;
  printf("}\n");
  fflush(stdout);
}

/* The lowest rank for which something is true, or size. */
static int lowest(int is_true, int rank, int size) {
  int found = is_true ? rank : size;
  MPI_Allreduce(MPI_IN_PLACE, &found, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return found;
}

static size_t calls_of(size_t count) {
  size_t calls = BYTES_A_REPETITION / (count * sizeof(float));
  return calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : calls;
}

/* One repetition into *sample; *elapsed is the longest time since began. values holds count elements for each
 * of the calls. Returns an exit code, the same on all ranks. */
static int repeat(const struct timing_subject* subject, const struct plan* plan, float* values, size_t count,
                  long repetition, double began, struct sample* sample, double* elapsed) {
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  long calls = (long)calls_of(count);
  for (long i = 0; i < calls; i++) fill(values + (size_t)i * count, count, rank, repetition * calls + i);
  MPI_Barrier(MPI_COMM_WORLD);
  double used[2], used_before[2];
  processor_seconds(used_before);
  double start = now();
  int code = 0;
  for (long i = 0; i < calls && code == 0; i++) code = subject->allreduce(values + (size_t)i * count, count);
  double times[2] = {(now() - start) / (double)calls, 0};
  processor_seconds(used);
  for (int mode = 0; mode < 2; mode++) used[mode] = (used[mode] - used_before[mode]) / (double)calls;

  struct {
    double index, got, expected, code;
    char text[TEXT];
  } report = {0};
  report.code = code;
  int failed = lowest(code != 0, rank, size);
  int bad = size;
  if (failed == size) {
    size_t index = count;
    for (long i = 0; i < calls && index == count; i++) {
      const float* part = values + (size_t)i * count;
      index = first_wrong(plan, part, count, size, repetition * calls + i, &report.expected);
      if (index < count) {
        report.index = (double)index;
        report.got = part[index];
      }
    }
    bad = lowest(index < count, rank, size);
  } else if (failed == rank) {
    snprintf(report.text, sizeof report.text, "%s", subject->error(code));
  }
  int source = failed < size ? failed : bad;
  if (source < size) {
    MPI_Bcast(&report, sizeof report, MPI_BYTE, source, MPI_COMM_WORLD);
    if (rank == 0) {
      printf("@ddl-bench {\"event\": \"%s\", \"bytes\": %zu, \"rank\": %d, ",
             failed < size ? "failed" : "wrong", count * sizeof *values, source);
      if (failed < size) {
        printf("\"code\": %.0f, \"text\": ", report.code);
        print_text(report.text);
      } else {
        printf("\"index\": %.0f, \"got\": \"%.9g\", \"expected\": \"%.9g\"", report.index, report.got,
               report.expected);
      }
      printf("}\n");
      fflush(stdout);
    }
    return failed < size ? 4 : 3;
  }
  times[1] = now() - began;
  MPI_Allreduce(MPI_IN_PLACE, times, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, used, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  *sample = (struct sample){times[0], used[0], used[1]};
  *elapsed = times[1];
  return 0;
}

/* *best is the shortest repetition. */
static int measure(const struct timing_subject* subject, const struct plan* plan, size_t bytes,
                   double* best) {
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  size_t count = bytes / sizeof(float);
  float* values = malloc(calls_of(count) * bytes);
  struct sample* samples = malloc((size_t)plan->most * sizeof *samples);
  struct sample* warmup = malloc((size_t)(plan->warmups + 1) * sizeof *warmup);
  int lacking = lowest(!values || !samples || !warmup, 0, 1);
  if (lacking == 0) {
    if (rank == 0)
      fprintf(stderr, "no memory for %zu bytes on some rank; ask for smaller sizes\n",
              calls_of(count) * bytes);
    free(values);
    free(samples);
    free(warmup);
    return 4;
  }
  double elapsed = 0;
  long warm = 0, done = 0;
  int rc = 0;
  double began = now();
  while (rc == 0 && warm < plan->warmups) {
    rc = repeat(subject, plan, values, count, warm, began, &warmup[warm], &elapsed);
    warm++;
  }
  elapsed = 0;
  began = now();
  while (rc == 0 && done < plan->most && (done < plan->least || elapsed < plan->budget)) {
    rc = repeat(subject, plan, values, count, plan->warmups + done, began, &samples[done], &elapsed);
    done++;
  }
  if (rc == 0 && rank == 0) {
    printf("@ddl-bench {\"event\": \"size\", \"bytes\": %zu, ", bytes);
    print_samples("warmup", warmup, warm, offsetof(struct sample, seconds));
    printf(", ");
    print_samples("seconds", samples, done, offsetof(struct sample, seconds));
    printf(", ");
    print_samples("user", samples, done, offsetof(struct sample, user));
    printf(", ");
    print_samples("system", samples, done, offsetof(struct sample, system));
    printf("}\n");
    fflush(stdout);
  }
  for (long i = 0; rc == 0 && i < done; i++)
    if (i == 0 || samples[i].seconds < *best) *best = samples[i].seconds;
  free(values);
  free(samples);
  free(warmup);
  return rc;
}

static int read_long(const char* text, long least, long* value) {
  char* end;
  errno = 0;
  *value = strtol(text, &end, 10);
  return errno == 0 && end != text && *end == '\0' && *value >= least;
}

static int read_double(const char* text, double* value) {
  char* end;
  errno = 0;
  *value = strtod(text, &end);
  return errno == 0 && end != text && *end == '\0' && *value >= 0;
}

int timing_run(int argc, char** argv, const struct timing_subject* subject) {
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  struct plan plan = {0};
  char *rest = NULL, *warmups_rest = NULL;
  char* warmups = argc < 6 ? NULL : strtok_r(argv[5], ",", &warmups_rest);
  const int tolerant =
      argc == 8 && read_double(argv[6], &plan.relative) && read_double(argv[7], &plan.absolute);
  if ((argc != 6 && !tolerant) || !read_double(argv[2], &plan.budget) ||
      !read_long(argv[3], 1, &plan.least) || !read_long(argv[4], 1, &plan.most) || plan.most < plan.least ||
      !warmups || !read_long(warmups, 0, &plan.warmups)) {
    if (rank == 0)
      fprintf(stderr, "usage: %s SIZE[:BEST],... BUDGET LEAST MOST WARMUPS [RELATIVE ABSOLUTE]\n", argv[0]);
    return 2;
  }
  print_start(subject->library, rank, size);
  int rc = 0, abandoned = 0;
  double best = 0, worst_ratio = 0, rate = 0, spent = 0;
  for (char* word = strtok_r(argv[1], ",", &rest); word && rc == 0; word = strtok_r(NULL, ",", &rest)) {
    double known = 0;
    long bytes;
    char* colon = strchr(word, ':');
    if (colon) *colon = '\0';
    if (!read_long(word, 4, &bytes) || bytes % 4 || (colon && !read_double(colon + 1, &known))) {
      if (rank == 0) fprintf(stderr, "%s: not a size in bytes, a multiple of 4\n", word);
      return 2;
    }
    if (warmups && !read_long(warmups, 0, &plan.warmups)) {
      if (rank == 0) fprintf(stderr, "%s: not a number of repetitions\n", warmups);
      return 2;
    }
    warmups = strtok_r(NULL, ",", &warmups_rest);
    if (worst_ratio > ABANDONED && (rate * (double)bytes > ABANDONED_SECONDS || spent > ABANDONED_SECONDS)) {
      abandoned = 1;
      break;
    }
    spent = now();
    rc = measure(subject, &plan, (size_t)bytes, &best);
    spent = now() - spent;
    if (rc == 0) MPI_Bcast(&spent, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    worst_ratio = known > 0 ? best / known : 0;
    rate = best / (double)bytes;
  }
  const char* description = rc == 0 && rank == 0 && subject->describe ? subject->describe() : NULL;
  if (rc == 0 && rank == 0) {
    printf("@ddl-bench {\"event\": \"end\", \"description\": %s, \"abandoned\": %s}\n",
           description ? description : "null", abandoned ? "true" : "false");
    fflush(stdout);
  }
  return rc;
}
