/* Arguments: SIZE[:ENOUGH],... BUDGET LEAST MOST WARMUPS
 *
 * SIZE: bytes, a multiple of 4. ENOUGH: seconds; what takes longer is measured once (0: nothing is).
 *
 * BUDGET: seconds that the repetitions of one size may take, filling and checking included.
 *
 * LEAST: repetitions that are made even when the budget is spent. MOST: repetitions at most.
 *
 * WARMUPS: repetitions before those, kept apart.
 */
#include "timing.h"

#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Values repeat after this many elements. They are small whole numbers, so that their sum is exact in float32
 * in any order, and they differ between ranks, elements and repetitions. */
enum { PERIOD = 1024, TEXT = 512 };

/* Only what takes so many seconds is worth cutting short. */
static const double CUT_SECONDS = 0.5;
/* The first repetition, which makes the connections, is taken for the result and not repeated when it takes
 * more than so many times ENOUGH. */
static const double HOPELESS = 4;
/* The sizes that follow are left out when this one took more than so many times ENOUGH, and the next one can
 * be expected to take more than so many seconds. */
static const double ABANDONED = 10, ABANDONED_SECONDS = 60;

/* A repetition is as many calls as make up so many bytes, at least one, at most MOST_CALLS; its time is that
 * of one call. A shaper saves up for a burst of 128 KiB while nothing is sent: a peer whose barrier is slow
 * would have saved more than the others, and look faster, if small calls were timed one by one. */
enum { BYTES_A_REPETITION = 1 << 20, MOST_CALLS = 64 };

struct plan {
  double budget;
  long least, most, warmups;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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
static size_t first_wrong(const float* values, size_t count, int size, long repetition, double* expected) {
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
      if (!(values[done + i] == period[i])) {
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

static void print_seconds(const char* name, const double* seconds, long count) {
  printf("\"%s\": [", name);
  for (long i = 0; i < count; i++) printf("%s%.9g", i ? ", " : "", seconds[i]);
  printf("]");
}

static void print_start(const char* library, int rank, int size) {
  char name[MPI_MAX_PROCESSOR_NAME] = {0};
  int length;
  MPI_Get_processor_name(name, &length);
  char* names = rank ? NULL : calloc((size_t)size, sizeof name);
  MPI_Gather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (rank) return;
  printf("@ddl-bench {\"event\": \"start\", \"library\": ");
  print_text(library);
  printf(", \"hosts\": [");
  for (int i = 0; i < size; i++) {
    if (i) printf(", ");
    print_text(names + (size_t)i * sizeof name);
  }
  printf("]}\n");
  fflush(stdout);
  free(names);
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

/* One repetition: *seconds is the slowest rank's time of a call, *elapsed the longest time since began.
 * values holds count elements for each of the calls. Returns an exit code, the same on all ranks. */
static int repeat(const struct timing_subject* subject, float* values, size_t count, long repetition,
                  double began, double* seconds, double* elapsed) {
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  long calls = (long)calls_of(count);
  for (long i = 0; i < calls; i++) fill(values + (size_t)i * count, count, rank, repetition * calls + i);
  MPI_Barrier(MPI_COMM_WORLD);
  double start = now();
  int code = 0;
  for (long i = 0; i < calls && code == 0; i++) code = subject->allreduce(values + (size_t)i * count, count);
  double times[2] = {(now() - start) / (double)calls, 0};

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
      index = first_wrong(part, count, size, repetition * calls + i, &report.expected);
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
  *seconds = times[0];
  *elapsed = times[1];
  return 0;
}

/* *best is the shortest repetition. */
static int measure(const struct timing_subject* subject, const struct plan* plan, size_t bytes, double enough,
                   double* best) {
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  size_t count = bytes / sizeof(float);
  float* values = malloc(calls_of(count) * bytes);
  double* seconds = malloc((size_t)plan->most * sizeof *seconds);
  double* warmup = malloc((size_t)plan->warmups * sizeof *warmup);
  int lacking = lowest(!values || !seconds || !warmup, 0, 1);
  if (lacking == 0) {
    if (rank == 0)
      fprintf(stderr, "no memory for %zu bytes on some rank; ask for smaller sizes\n",
              calls_of(count) * bytes);
    free(values);
    free(seconds);
    free(warmup);
    return 4;
  }
  double elapsed = 0;
  long warm = 0, done = 0;
  int cut = 0, rc = 0;
  double began = now();
  while (rc == 0 && !cut && warm < plan->warmups) {
    rc = repeat(subject, values, count, warm, began, &warmup[warm], &elapsed);
    cut = rc == 0 && enough > 0 && warmup[0] > HOPELESS * enough && warmup[0] > 2 * CUT_SECONDS;
    warm++;
  }
  if (cut) seconds[done++] = warmup[0];
  began = now();
  while (rc == 0 && !cut && done < plan->most && (done < plan->least || elapsed < plan->budget)) {
    rc = repeat(subject, values, count, plan->warmups + done, began, &seconds[done], &elapsed);
    cut = rc == 0 && enough > 0 && seconds[done] > enough && seconds[done] > CUT_SECONDS &&
          done + 1 < plan->least;
    done++;
  }
  if (rc == 0 && rank == 0) {
    printf("@ddl-bench {\"event\": \"size\", \"bytes\": %zu, ", bytes);
    print_seconds("warmup", warmup, warm);
    printf(", ");
    print_seconds("seconds", seconds, done);
    printf(", \"cut\": %s}\n", cut ? "true" : "false");
    fflush(stdout);
  }
  for (long i = 0; i < done; i++)
    if (i == 0 || seconds[i] < *best) *best = seconds[i];
  free(values);
  free(seconds);
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
  struct plan plan;
  if (argc != 6 || !read_double(argv[2], &plan.budget) || !read_long(argv[3], 1, &plan.least) ||
      !read_long(argv[4], 1, &plan.most) || plan.most < plan.least || !read_long(argv[5], 1, &plan.warmups)) {
    if (rank == 0) fprintf(stderr, "usage: %s SIZE[:ENOUGH],... BUDGET LEAST MOST WARMUPS\n", argv[0]);
    return 2;
  }
  print_start(subject->library, rank, size);
  int rc = 0, abandoned = 0;
  double best = 0, worst_ratio = 0, rate = 0;
  char* rest = NULL;
  for (char* word = strtok_r(argv[1], ",", &rest); word && rc == 0; word = strtok_r(NULL, ",", &rest)) {
    double enough = 0;
    long bytes;
    char* colon = strchr(word, ':');
    if (colon) *colon = '\0';
    if (!read_long(word, 4, &bytes) || bytes % 4 || (colon && !read_double(colon + 1, &enough))) {
      if (rank == 0) fprintf(stderr, "%s: not a size in bytes, a multiple of 4\n", word);
      return 2;
    }
    if (worst_ratio > ABANDONED && rate * (double)bytes > ABANDONED_SECONDS) {
      abandoned = 1;
      break;
    }
    rc = measure(subject, &plan, (size_t)bytes, enough, &best);
    worst_ratio = enough > 0 ? best / enough : 0;
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
