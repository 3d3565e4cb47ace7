/* A libcuda.so.1 with ordinary memory behind it. FAKE_CUDA_INIT: what cuInit returns. FAKE_CUDA_BROKEN: memory keeps
 * what it had. FAKE_CUDA_TAKEN: so many MiB of what is free cannot be had. FAKE_CUDA_SEEN: file for the GPU's uuid. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long pointer;
static size_t available = 96u << 20;

static size_t number(const char *name) { return getenv(name) ? strtoul(getenv(name), 0, 10) : 0; }

int cuInit(unsigned flags) {
    if (getenv("FAKE_CUDA_SEEN")) {
        FILE *file = fopen(getenv("FAKE_CUDA_SEEN"), "a");
        fprintf(file, "%s\n", getenv("CUDA_VISIBLE_DEVICES"));
        fclose(file);
    }
    return (int)number("FAKE_CUDA_INIT");
}
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { *context = &available; return 0; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { *free_bytes = *total = available; return 0; }
int cuMemAlloc_v2(pointer *to, size_t bytes) {
    if (bytes + (number("FAKE_CUDA_TAKEN") << 20) > available) return 2;
    available -= bytes;
    *to = (pointer)memset(malloc(bytes), 0xAB, bytes);
    return 0;
}
int cuMemsetD32_v2(pointer to, unsigned value, size_t words) {
    if (!getenv("FAKE_CUDA_BROKEN")) memset((void *)to, (int)value, 4 * words);
    return 0;
}
int cuCtxSynchronize(void) { return 0; }
int cuMemcpyDtoH_v2(void *to, pointer from, size_t bytes) { memcpy(to, (void *)from, bytes); return 0; }
int cuMemFree_v2(pointer of) { free((void *)of); return 0; }
int cuCtxDestroy_v2(void *context) { return 0; }
