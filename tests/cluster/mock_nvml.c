/* A stand-in for NVIDIA's libnvidia-ml.so.1, for machines without a GPU: it has as many GPUs as "gpus" in /run/mock-nvml
 * says, in lines of NAME VALUE, which jaxsif/node/nvml.py then sees. Without the file there is no driver. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MISSING 3 /* NVML_ERROR_NOT_SUPPORTED */

static long find(const char *name, long other) {
    FILE *file = fopen("/run/mock-nvml", "r");
    char found[64], value[64];
    long number = other;
    while (file && fscanf(file, "%63s %63s", found, value) == 2)
        if (!strcmp(found, name)) sscanf(value, "%ld", &number);
    if (file) fclose(file);
    return number;
}

int nvmlInit_v2(void) { return find("gpus", -1) < 0 ? 9 : 0; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    return snprintf(text, size, "%ld.57.08", find("driver", 580)) < 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) { return *count = find("gpus", 0), 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(uintptr_t)(index + 1);
    return (long)index == find("lost", -1) ? 15 : (long)index == find("hidden", -1) ? 4 : 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    return snprintf(name, size, "Mock %ld", (uintptr_t)device == 1 ? find("name", 100) : 100) < 0;
}

int nvmlDeviceGetMemoryInfo(void *device, uint64_t *memory) { return memory[2] = (uint64_t)find("memory", 1) << 20, 0; }

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, uint64_t *errors) {
    return *errors = type == 1 && counter == 0 ? find("errors", 0) : 7, 0;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    *corrected = *uncorrected = 2;
    return *pending = find("pending", 0), *failed = find("failed", 0), 0;
}

struct field { uint32_t field, scope; int64_t timestamp, latency; uint32_t type, status; uint64_t value; };

int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields) {
    fields->status = fields->field == 230 ? 0 : MISSING;
    return fields->value = find("recovery", 0), count != 1;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *state) {
    return *state = (long)link >= find("down", 0), link < 18 ? 0 : 2;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *then) { return *now = *then = find("mig", 0), 0; }

int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *limit) { return *limit = find("power", 700) * 1000, 0; }

int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *limit) { return *limit = 700000, 0; }
