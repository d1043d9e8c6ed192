/* Stands in for NVIDIA's libnvidia-ml.so.1: what it tells is in nvml.txt beside it, a line a thing.
 *
 *   driver VERSION             cuda NUMBER              of the driver
 *   init CODE                  what nvmlInit_v2 returns; `init hang`: it never does
 *   old                        without nvmlDeviceGetNvLinkRemoteDeviceType, as in older drivers
 *   gpu BUS UUID BYTES MODE NAME…     a GPU; the lines below belong to it
 *   link ACTIVE gpu|switch|npu BUS    one of its NVLinks, in their order
 *   mig UUID NAME…                    a MIG device of it
 *   closed                     a GPU that this process may not use
 *   lost                       a GPU that has fallen off the bus
 *
 * Names, numbers and layouts are those of nvml.h.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kOk = 0, kUninitialized = 1, kInvalid = 2, kUnsupported = 3, kNoPermission = 4, kNotFound = 6 };
enum { kSize = 7, kNoFunction = 13, kLost = 15, kMismatch = 18 };
enum { kMost = 32, kLinks = 18, kText = 96 };

typedef struct {
  int active, kind;
  unsigned domain, bus, device;
} Link;

typedef struct {
  int closed, lost, part, links, parts;
  unsigned domain, bus, device, mode;
  unsigned long long bytes;
  char uuid[kText], name[kText];
  Link link[kLinks];
  int part_at[8];
} Device;

typedef struct {
  char bus_legacy[16];
  unsigned domain, bus, device, kind, subsystem;
  char bus_text[32];
} Pci;

static Device devices[kMost], parts[kMost];
static int device_count, part_count, ready, old, init_code;
static unsigned cuda;
static char driver[kText];

static const char* kind_names[] = {"gpu", "npu", "switch"};

static void read_line(char* line) {
  Device* last = device_count > 0 ? &devices[device_count - 1] : NULL;
  char word[32] = "", kind[32] = "";
  int used = 0, code = 0;
  line[strcspn(line, "\n")] = 0;
  if (sscanf(line, "%31s %n", word, &used) != 1) return;
  const char* rest = line + used;
  if (strcmp(word, "driver") == 0) snprintf(driver, sizeof driver, "%s", rest);
  if (strcmp(word, "cuda") == 0) cuda = (unsigned)atoi(rest);
  if (strcmp(word, "old") == 0) old = 1;
  if (strcmp(word, "init") == 0) init_code = strcmp(rest, "hang") == 0 ? -1 : atoi(rest);
  if (strcmp(word, "closed") == 0) devices[device_count++].closed = 1;
  if (strcmp(word, "lost") == 0) devices[device_count++].lost = 1;
  if (strcmp(word, "gpu") == 0) {
    Device* gpu = &devices[device_count++];
    code = sscanf(rest, "%x:%x:%x.0 %95s %llu %u %95[^\n]", &gpu->domain, &gpu->bus, &gpu->device, gpu->uuid,
                  &gpu->bytes, &gpu->mode, gpu->name);
    if (code != 7) abort();
  }
  if (strcmp(word, "link") == 0 && last != NULL) {
    Link* link = &last->link[last->links++];
    if (sscanf(rest, "%d %31s %x:%x:%x.0", &link->active, kind, &link->domain, &link->bus, &link->device) !=
        5)
      abort();
    for (int i = 0; i < 3; ++i)
      if (strcmp(kind, kind_names[i]) == 0) link->kind = i;
  }
  if (strcmp(word, "mig") == 0 && last != NULL) {
    Device* part = &parts[part_count];
    if (sscanf(rest, "%95s %95[^\n]", part->uuid, part->name) != 2) abort();
    part->part = 1;
    last->part_at[last->parts++] = part_count++;
  }
}

static void read_description(void) {
  Dl_info info;
  char path[4096], line[512];
  if (dladdr((void*)read_description, &info) == 0) abort();
  snprintf(path, sizeof path - 16, "%s", info.dli_fname);
  strcpy(strrchr(path, '/') + 1, "nvml.txt");
  FILE* file = fopen(path, "r");
  if (file == NULL) abort();
  while (fgets(line, sizeof line, file) != NULL) read_line(line);
  fclose(file);
}

static int copy(const char* text, char* to, unsigned size) {
  if (strlen(text) >= size) return kSize;
  strcpy(to, text);
  return kOk;
}

static void place(Pci* to, unsigned domain, unsigned bus, unsigned device) {
  memset(to, 0, sizeof *to);
  to->domain = domain;
  to->bus = bus;
  to->device = device;
  snprintf(to->bus_text, sizeof to->bus_text, "%08X:%02X:%02X.0", domain, bus, device);
}

int nvmlInit_v2(void) {
  read_description();
  while (init_code < 0) sleep(1);
  ready = init_code == kOk;
  return init_code;
}

const char* nvmlErrorString(int code) {
  switch (code) {
    case kUnsupported:
      return "Not Supported";
    case kNoPermission:
      return "Insufficient Permissions";
    case kLost:
      return "GPU is lost";
    case kMismatch:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return ready ? copy(driver, text, size) : kUninitialized;
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = (int)cuda;
  return ready ? kOk : kUninitialized;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = (unsigned)device_count;
  return ready ? kOk : kUninitialized;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
  if (!ready) return kUninitialized;
  if (index >= (unsigned)device_count) return kInvalid;
  *device = &devices[index];
  if ((*device)->closed) return kNoPermission;
  return (*device)->lost ? kLost : kOk;
}

int nvmlDeviceGetPciInfo_v3(Device* device, Pci* pci) {
  place(pci, device->domain, device->bus, device->device);
  return device->part ? kUnsupported : kOk;
}

int nvmlDeviceGetUUID(Device* device, char* text, unsigned size) { return copy(device->uuid, text, size); }

int nvmlDeviceGetName(Device* device, char* text, unsigned size) { return copy(device->name, text, size); }

int nvmlDeviceGetMemoryInfo(Device* device, unsigned long long* memory) {
  memory[0] = memory[1] = device->bytes;
  memory[2] = 0;
  return kOk;
}

int nvmlDeviceGetComputeMode(Device* device, unsigned* mode) {
  *mode = device->mode;
  return kOk;
}

int nvmlDeviceGetNvLinkState(Device* device, unsigned link, unsigned* active) {
  if (device->links == 0) return kUnsupported;
  if (link >= (unsigned)device->links) return kInvalid;
  *active = (unsigned)device->link[link].active;
  return kOk;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device* device, unsigned link, Pci* pci) {
  if (link >= (unsigned)device->links || !device->link[link].active) return kInvalid;
  place(pci, device->link[link].domain, device->link[link].bus, device->link[link].device);
  return kOk;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(Device* device, unsigned link, unsigned* kind) {
  if (old) return kNoFunction;
  if (link >= (unsigned)device->links || !device->link[link].active) return kInvalid;
  *kind = (unsigned)device->link[link].kind;
  return kOk;
}

int nvmlDeviceGetMigMode(Device* device, unsigned* current, unsigned* pending) {
  if (device->part) return kInvalid;
  *current = *pending = device->parts > 0;
  return kOk;
}

int nvmlDeviceGetMaxMigDeviceCount(Device* device, unsigned* count) {
  *count = device->parts > 0 ? 7 : 0;
  return kOk;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device* device, unsigned index, Device** part) {
  if (index >= (unsigned)device->parts) return kNotFound;
  *part = &parts[device->part_at[index]];
  return kOk;
}
