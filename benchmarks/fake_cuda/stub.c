/* A CUDA runtime and driver without a device. Streams and events are numbers, device memory is host memory.
   Kernels are refused. A hook gets every record, wait and synchronization, in their order. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD, WAIT, WAIT_FOR_EVENT, WAIT_FOR_STREAM, WAIT_FOR_DEVICE, QUERY_EVENT, QUERY_STREAM };
typedef int (*hook_type)(int what, void *first, void *second);
static hook_type hook;
void stub_set_hook(hook_type new_hook) { hook = new_hook; }
static cudaError_t report(int what, void *first, void *second) {
    return hook && hook(what, first, second) ? cudaErrorNotReady : cudaSuccess;
}

/* The device: an H100, or what the environment says. */
static int number(const char *name, int usual) { char *text = getenv(name); return text ? atoi(text) : usual; }
static int capability(void) { return number("STUB_CAPABILITY", 90); }
static const size_t MEMORY = 80ul << 30;
static __thread int current;
cudaError_t cudaGetDeviceCount(int *count) { *count = number("STUB_DEVICES", 1); return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = current; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { current = device; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = CUDA_VERSION; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDA_VERSION; return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *it, int device) {
    memset(it, 0, sizeof *it);
    strcpy(it->name, "stub of a CUDA device");
    it->major = capability() / 10, it->minor = capability() % 10;
    it->totalGlobalMem = MEMORY, it->l2CacheSize = 50 << 20, it->regsPerMultiprocessor = 65536;
    it->multiProcessorCount = 132, it->warpSize = 32;
    it->maxThreadsPerBlock = 1024, it->maxThreadsPerMultiProcessor = 2048;
    it->sharedMemPerBlock = 49152, it->sharedMemPerBlockOptin = 232448;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    *value = attribute == cudaDevAttrComputeCapabilityMajor   ? capability() / 10
             : attribute == cudaDevAttrComputeCapabilityMinor ? capability() % 10
             : attribute == cudaDevAttrMultiProcessorCount    ? 132
                                                              : 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0, *greatest = -5; return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) { *can = 1; return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) { *free = *total = MEMORY; return cudaSuccess; }

/* Streams and events: every record, wait and query goes to the hook. */
static void *new_handle(void) { static size_t last = 16; return (void *)__sync_add_and_fetch(&last, 16); }
cudaError_t cudaStreamCreate(cudaStream_t *stream) { *stream = new_handle(); return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) { return cudaStreamCreate(stream); }
cudaError_t cudaEventCreate(cudaEvent_t *event) { *event = new_handle(); return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { return cudaEventCreate(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return report(RECORD, event, stream); }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) { return report(RECORD, event, stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) { return report(WAIT, stream, event); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return report(WAIT_FOR_EVENT, event, NULL); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return report(WAIT_FOR_STREAM, stream, NULL); }
cudaError_t cudaDeviceSynchronize(void) { return report(WAIT_FOR_DEVICE, NULL, NULL); }
cudaError_t cudaEventQuery(cudaEvent_t event) { return report(QUERY_EVENT, event, NULL); }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return report(QUERY_STREAM, stream, NULL); }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) { *ms = 1; return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* Memory. The runtime knows which host memory is pinned. */
static struct { char *start; size_t size; } pinned[1 << 16];
static unsigned pins;
cudaError_t cudaMalloc(void **pointer, size_t size) { *pointer = malloc(size); return *pointer ? cudaSuccess : cudaErrorMemoryAllocation; }
cudaError_t cudaFree(void *pointer) { free(pointer); return cudaSuccess; }
cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
    unsigned place = __sync_fetch_and_add(&pins, 1) & 65535;
    *pointer = malloc(size);
    pinned[place].start = *pointer, pinned[place].size = size;
    return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaMallocHost(void **pointer, size_t size) { return cudaHostAlloc(pointer, size, 0); }
cudaError_t cudaFreeHost(void *pointer) { return cudaSuccess; }
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *it, const void *pointer) {
    memset(it, 0, sizeof *it);
    for (unsigned place = 0; place < pins && place < 65536; place++)
        if ((char *)pointer >= pinned[place].start && (char *)pointer < pinned[place].start + pinned[place].size)
            it->type = cudaMemoryTypeHost;
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) { memcpy(to, from, size); return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) { return cudaMemcpy(to, from, size, kind); }
cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream) { memset(to, value, size); return cudaSuccess; }

/* An operation that is not fake fails. */
cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) { return cudaErrorNotSupported; }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments) { return cudaErrorNotSupported; }

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    if (flags) *flags = 0;
    if (active) *active = 1;
    return CUDA_SUCCESS;
}
static CUresult succeed(void) { return CUDA_SUCCESS; }
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **pointer, unsigned version, unsigned long long flags, enum cudaDriverEntryPointQueryResult *result) {
    *pointer = strcmp(name, "cuDevicePrimaryCtxGetState") ? (void *)succeed : (void *)cuDevicePrimaryCtxGetState;
    if (result) *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
