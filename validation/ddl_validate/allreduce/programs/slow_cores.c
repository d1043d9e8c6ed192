/* Makes the cores of a machine slower, and looks whether they are.
 *
 * slow_cores take SHARE: on every core that this process may use, a thread of real-time priority computes for
 * 1 - SHARE of each period of 200 microseconds, and sleeps for the rest. All cores pause at the same moments,
 * so two ranks that talk to each other never wait for the pause of the other. Writes "ready" once all threads
 * run. Ends when standard input is closed, as it is when the process that started it ends.
 *
 * slow_cores spin SECONDS: computes on every core at the usual priority, and writes the share of the time
 * that it got: processor seconds over seconds and cores.
 *
 * Exit code: 0; 1 after a line on standard error; 2 for arguments that cannot be read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Longer periods would leave a short call alone or stop it altogether; in shorter ones the change from rank
 * to thread and back, some microseconds, would count for too much. */
static const long long PERIOD = 200000;
/* Above what runs at the lowest real-time priority by default, below the kernel's own threads. */
enum { PRIORITY = 10 };

static long long busy;
static double spin_seconds;
static pthread_barrier_t all_ready;

struct worker {
  pthread_t thread;
  int core, error;
  double used;
};

static long long nanoseconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int stay_on(int core) {
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(core, &own);
  return sched_setaffinity(0, sizeof own, &own) ? errno : 0;
}

static void* take(void* argument) {
  struct worker* own = argument;
  struct sched_param priority = {.sched_priority = PRIORITY};
  own->error = stay_on(own->core);
  if (own->error == 0 && sched_setscheduler(0, SCHED_FIFO, &priority)) own->error = errno;
  pthread_barrier_wait(&all_ready);
  while (own->error == 0) {
    long long next = (nanoseconds(CLOCK_MONOTONIC) / PERIOD + 1) * PERIOD;
    struct timespec moment = {next / 1000000000, next % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL);
    while (nanoseconds(CLOCK_MONOTONIC) < next + busy) continue;
  }
  return NULL;
}

static void* spin(void* argument) {
  struct worker* own = argument;
  own->error = stay_on(own->core);
  pthread_barrier_wait(&all_ready);
  long long end = nanoseconds(CLOCK_MONOTONIC) + (long long)(1e9 * spin_seconds);
  long long began = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  while (nanoseconds(CLOCK_MONOTONIC) < end) continue;
  own->used = 1e-9 * (double)(nanoseconds(CLOCK_THREAD_CPUTIME_ID) - began);
  return NULL;
}

int main(int argc, char** argv) {
  double value = argc == 3 ? strtod(argv[2], NULL) : 0;
  int taking = argc == 3 && strcmp(argv[1], "take") == 0;
  if (!(value > 0) || (taking ? value > 1 : argc != 3 || strcmp(argv[1], "spin") != 0)) {
    fprintf(stderr, "usage: %s take SHARE | spin SECONDS\n", argv[0]);
    return 2;
  }
  if (taking) {
    busy = (long long)((1 - value) * (double)PERIOD);
  } else {
    spin_seconds = value;
  }
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) {
    fprintf(stderr, "the cores cannot be read: %s\n", strerror(errno));
    return 1;
  }
  static struct worker workers[CPU_SETSIZE];
  int count = 0;
  for (int core = 0; core < CPU_SETSIZE; core++)
    if (CPU_ISSET(core, &allowed)) workers[count++].core = core;
  pthread_barrier_init(&all_ready, NULL, (unsigned)count + 1);
  for (int i = 0; i < count; i++) {
    int code = pthread_create(&workers[i].thread, NULL, taking ? take : spin, &workers[i]);
    if (code) {
      fprintf(stderr, "no thread for core %d: %s\n", workers[i].core, strerror(code));
      return 1;
    }
  }
  pthread_barrier_wait(&all_ready);
  for (int i = 0; i < count; i++) {
    if (workers[i].error) {
      fprintf(stderr, "core %d: %s\n", workers[i].core, strerror(workers[i].error));
      return 1;
    }
  }
  if (taking) {
    char ignored;
    printf("ready\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &ignored, 1) > 0) continue;
    return 0;
  }
  double used = 0;
  for (int i = 0; i < count; i++) {
    pthread_join(workers[i].thread, NULL);
    used += workers[i].used;
  }
  printf("%.6f\n", used / (spin_seconds * count));
  return 0;
}
