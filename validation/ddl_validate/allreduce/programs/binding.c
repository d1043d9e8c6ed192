/* Which cores a rank runs on: decided here and not by the launchers, so that it is the same for every peer.
 *
 * DDL_BENCH_PLACES holds INDEX/RANKS of every rank, in the order of the ranks, with commas: the rank is the
 * INDEX-th of RANKS ranks that share a machine. The cores that the process may use are ordered by package,
 * core and thread, and divided into as many blocks, as equal as can be. Where there are more ranks than
 * cores, all ranks keep all cores.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

struct core {
  int package, core, number;
};

/* A number in a file of a CPU's folder in /sys; 0 where there is none, so that the CPU's own number decides.
 */
static int topology_of(int number, const char* what) {
  char path[128];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", number, what);
  FILE* file = fopen(path, "r");
  int value = 0;
  if (file) {
    if (fscanf(file, "%d", &value) != 1) value = 0;
    fclose(file);
  }
  return value;
}

static int compare(const void* left, const void* right) {
  const struct core *a = left, *b = right;
  if (a->package != b->package) return a->package < b->package ? -1 : 1;
  if (a->core != b->core) return a->core < b->core ? -1 : 1;
  return a->number < b->number ? -1 : a->number > b->number;
}

/* The rank as the launcher tells it before MPI is started; -1 where it does not. */
static long launched_rank(void) {
  static const char* const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char* text = getenv(names[i]);
    if (text && *text) return strtol(text, NULL, 10);
  }
  return -1;
}

int timing_bind(void) {
  const char* places = getenv("DDL_BENCH_PLACES");
  if (!places || !*places) return 0;
  long rank = launched_rank(), index = -1, ranks = 0;
  for (long i = 0; i < rank && places; i++) {
    places = strchr(places, ',');
    if (places) places++;
  }
  if (rank < 0 || !places || sscanf(places, "%ld/%ld", &index, &ranks) != 2 || index < 0 || index >= ranks) {
    fprintf(stderr, "DDL_BENCH_PLACES: no place for rank %ld\n", rank);
    return 2;
  }
  cpu_set_t allowed, own;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) {
    fprintf(stderr, "the cores of rank %ld cannot be read: %s\n", rank, strerror(errno));
    return 2;
  }
  static struct core cores[CPU_SETSIZE];
  long count = 0;
  for (int number = 0; number < CPU_SETSIZE; number++)
    if (CPU_ISSET(number, &allowed))
      cores[count++] =
          (struct core){topology_of(number, "physical_package_id"), topology_of(number, "core_id"), number};
  if (ranks > count) return 0;
  qsort(cores, (size_t)count, sizeof *cores, compare);
  CPU_ZERO(&own);
  for (long i = index * count / ranks; i < (index + 1) * count / ranks; i++) CPU_SET(cores[i].number, &own);
  if (sched_setaffinity(0, sizeof own, &own)) {
    fprintf(stderr, "rank %ld cannot be bound to its cores: %s\n", rank, strerror(errno));
    return 2;
  }
  return 0;
}

void timing_cores(char* text, size_t length) {
  cpu_set_t allowed;
  size_t used = 0;
  text[0] = '\0';
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
  for (int first = 0; first < CPU_SETSIZE; first++) {
    if (!CPU_ISSET(first, &allowed)) continue;
    int last = first;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &allowed)) last++;
    const char* comma = used ? "," : "";
    int wrote = first == last ? snprintf(text + used, length - used, "%s%d", comma, first)
                              : snprintf(text + used, length - used, "%s%d-%d", comma, first, last);
    if (wrote < 0 || (size_t)wrote >= length - used) {
      text[used] = '\0';
      return;
    }
    used += (size_t)wrote;
    first = last;
  }
}
