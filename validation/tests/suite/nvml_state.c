/* Stands in for NVIDIA's management library: what it says is in the file that NVML_STATE names, in lines of
 * `NAME VALUE`, where NAME may begin with the number of the GPU and a dot. What the file does not name, the
 * GPU cannot do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, UNKNOWN = 999 };

struct pci {
  char bus_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

/* of a GPU, else of all */
static int find(const void* gpu, const char* name, char* value) {
  char line[256], one[128], own[128], text[128];
  int found = 0;
  FILE* file = fopen(getenv("NVML_STATE"), "r");
  if (!file) return 0;
  snprintf(own, sizeof own, "%d.%s", gpu ? (int)(size_t)gpu - 1 : -1, name);
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "%127s %127[^\n]", one, text) != 2) continue;
    if (strcmp(one, own) == 0 || (found == 0 && strcmp(one, name) == 0)) {
      found = strcmp(one, own) == 0 ? 2 : 1;
      strcpy(value, text);
    }
  }
  fclose(file);
  return found;
}

static int number(const void* gpu, const char* name, unsigned* value) {
  char text[128];
  if (!find(gpu, name, text)) return NOT_SUPPORTED;
  *value = (unsigned)strtoul(text, NULL, 0);
  return SUCCESS;
}

static int long_number(const void* gpu, const char* name, unsigned long long* value) {
  char text[128];
  if (!find(gpu, name, text)) return NOT_SUPPORTED;
  *value = strtoull(text, NULL, 0);
  return SUCCESS;
}

int nvmlInit_v2(void) {
  unsigned code = SUCCESS;
  number(NULL, "init", &code);
  return (int)code;
}

int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  snprintf(text, length, "550.54.15");
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned* count) { return number(NULL, "gpus", count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) {
  unsigned lost = 0;
  *gpu = (void*)(size_t)(index + 1);
  number(*gpu, "lost", &lost);
  return lost ? UNKNOWN : SUCCESS;
}

int nvmlDeviceGetName(void* gpu, char* text, unsigned length) {
  (void)gpu;
  snprintf(text, length, "Stand-in");
  return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void* gpu, struct pci* told) {
  memset(told, 0, sizeof *told);
  snprintf(told->bus_id, sizeof told->bus_id, "00000000:0%d:00.0", (int)(size_t)gpu);
  return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void* gpu, int uncorrected, int ever, unsigned long long* errors) {
  const char* names[] = {"corrected", "uncorrected", "corrected_ever", "uncorrected_ever"};
  return long_number(gpu, names[2 * ever + uncorrected], errors);
}

int nvmlDeviceGetRemappedRows(void* gpu, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                              unsigned* failed) {
  if (number(gpu, "rows_corrected", corrected)) return NOT_SUPPORTED;
  *uncorrected = 0;
  number(gpu, "rows_pending", pending);
  number(gpu, "rows_failed", failed);
  return SUCCESS;
}

int nvmlDeviceGetRetiredPages(void* gpu, int cause, unsigned* count, unsigned long long* addresses) {
  unsigned pages;
  (void)cause;
  (void)addresses;
  if (number(gpu, "pages", &pages)) return NOT_SUPPORTED;
  if (*count >= pages) return SUCCESS;
  *count = pages;
  return INSUFFICIENT_SIZE;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void* gpu, unsigned* pending) {
  return number(gpu, "pages_pending", pending);
}

int nvmlDeviceGetNvLinkState(void* gpu, unsigned link, unsigned* active) {
  char name[32];
  snprintf(name, sizeof name, "link%u", link);
  return number(gpu, name, active);
}

int nvmlDeviceGetNvLinkErrorCounter(void* gpu, unsigned link, int counter, unsigned long long* errors) {
  (void)link;
  (void)counter;
  return long_number(gpu, "link_errors", errors);
}

int nvmlDeviceGetMaxPcieLinkGeneration(void* gpu, unsigned* value) {
  return number(gpu, "highest_generation", value);
}
int nvmlDeviceGetCurrPcieLinkGeneration(void* gpu, unsigned* value) {
  return number(gpu, "generation", value);
}
int nvmlDeviceGetMaxPcieLinkWidth(void* gpu, unsigned* value) { return number(gpu, "highest_width", value); }
int nvmlDeviceGetCurrPcieLinkWidth(void* gpu, unsigned* value) { return number(gpu, "width", value); }
int nvmlDeviceGetPcieReplayCounter(void* gpu, unsigned* value) { return number(gpu, "replays", value); }

int nvmlDeviceGetClockInfo(void* gpu, int type, unsigned* value) {
  return type == 1 ? number(gpu, "clock", value) : NOT_SUPPORTED;
}

int nvmlDeviceGetMaxClockInfo(void* gpu, int type, unsigned* value) {
  return type == 1 ? number(gpu, "highest_clock", value) : NOT_SUPPORTED;
}

int nvmlDeviceGetTemperature(void* gpu, int sensor, unsigned* value) {
  (void)sensor;
  return number(gpu, "temperature", value);
}

int nvmlDeviceGetTemperatureThreshold(void* gpu, int threshold, unsigned* value) {
  return threshold == 1 ? number(gpu, "slowdown", value) : NOT_SUPPORTED;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* gpu, unsigned long long* reasons) {
  return long_number(gpu, "throttled", reasons);
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 12040;
  return SUCCESS;
}

int nvmlDeviceGetVbiosVersion(void* gpu, char* text, unsigned length) {
  char value[128];
  if (!find(gpu, "vbios", value)) return NOT_SUPPORTED;
  snprintf(text, length, "%s", value);
  return SUCCESS;
}

int nvmlDeviceGetEccMode(void* gpu, unsigned* current, unsigned* pending) {
  *pending = 0;
  return number(gpu, "ecc", current);
}

int nvmlDeviceGetMigMode(void* gpu, unsigned* current, unsigned* pending) {
  *pending = 0;
  return number(gpu, "mig", current);
}

int nvmlDeviceGetPersistenceMode(void* gpu, unsigned* mode) { return number(gpu, "persistence", mode); }

int nvmlDeviceGetPowerManagementLimit(void* gpu, unsigned* milliwatts) {
  return number(gpu, "power_limit", milliwatts);
}

int nvmlDeviceGetApplicationsClock(void* gpu, int type, unsigned* clock) {
  return type == 1 ? number(gpu, "application_clock", clock) : NOT_SUPPORTED;
}

struct process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(void* gpu, unsigned* count, struct process* processes) {
  unsigned pid = 0;
  memset(processes, 0, *count * sizeof *processes);
  number(gpu, "pid", &pid);
  processes[0].pid = pid;
  *count = pid ? 1 : 0;
  return SUCCESS;
}
