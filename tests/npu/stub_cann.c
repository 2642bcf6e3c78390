/* A stand-in for CANN's C libraries, from which the real torch_npu imports, sees a device and computes small networks.

   The "device" is the host's memory. Operators that a policy of linear layers, SiLU and clips needs are computed in float32;
   every other operator and type is refused with an error, as are events and graphs left out. So it proves that torch_npu is
   used as it must be, and says nothing of an NPU's precision or speed. It exports graph2torch_stub_cann so that a report
   can say "simulated". Names and signatures are those that torch_npu looks up; structures are opaque to it.

   STUB_NPU_COUNT   devices that there are; 0 unless set */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int graph2torch_stub_cann = 1;

enum { OK = 0, BAD_DEVICE = 107001, NO_MEMORY = 207001, FAILED = 500001 };
enum { FLOAT32 = 0, INT64 = 9, UNDEFINED = 28 }; /* aclDataType; an absent operand is undefined */
enum { MOST_DIMS = 8 };

static const char *last_error = "";

static int devices(void) {
    const char *count = getenv("STUB_NPU_COUNT");
    return count ? atoi(count) : 0;
}

static int refuse(const char *why) {
    last_error = why;
    return FAILED;
}

/* ------------------------------------------------------------------------------------------- nothing to do, and it is done */
#define DONE(name) \
    int name(void) { return OK; }
DONE(MsprofRegisterCallback) DONE(MsprofReportAdditionalInfo) DONE(MsprofReportApi) DONE(MsprofReportCompactInfo)
DONE(aclAppLog) DONE(aclFinalize) DONE(aclInit) DONE(aclSetCompileopt)
DONE(aclmdlFinalizeDump) DONE(aclmdlInitDump) DONE(aclmdlSetDump)
DONE(aclSetTensorDescName) DONE(aclSetTensorFormat) DONE(aclSetTensorPlaceMent) DONE(aclSetTensorShape)
DONE(aclopSetAttrDataType) DONE(aclopSetAttrFloat) DONE(aclopSetAttrInt) DONE(aclopSetAttrListBool) DONE(aclopSetAttrListFloat)
DONE(aclopSetAttrListInt) DONE(aclopSetAttrListListInt) DONE(aclopSetAttrString)
DONE(aclrtBinaryGetFunction) DONE(aclrtBinaryLoadFromData) DONE(aclrtGetFunctionAddr)
DONE(aclrtDestroyEvent) DONE(aclrtDestroyStream) DONE(aclrtDestroyStreamForce) DONE(aclrtEventElapsedTime) DONE(aclrtRecordEvent)
DONE(aclrtResetEvent) DONE(aclrtStreamWaitEvent) DONE(aclrtSynchronizeEvent)
DONE(aclrtDeviceCanAccessPeer) DONE(aclrtDeviceEnablePeerAccess) DONE(aclrtDeviceGetBareTgid) DONE(aclGetDeviceCapability)
DONE(aclrtFreePhysical) DONE(aclrtMallocPhysical) DONE(aclrtMapMem) DONE(aclrtMemExportToShareableHandle)
DONE(aclrtMemImportFromShareableHandle) DONE(aclrtMemSetPidToShareableHandle) DONE(aclrtReleaseMemAddress)
DONE(aclrtReserveMemAddress) DONE(aclrtUnmapMem)
DONE(aclrtProcessReport) DONE(aclrtResetDevice) DONE(aclrtSetCurrentContext) DONE(aclrtSetDeviceSatMode)
DONE(aclrtSetOpExecuteTimeOut) DONE(aclrtSetSysParamOpt) DONE(aclrtCtxSetSysParamOpt)
DONE(aclrtSynchronizeDevice) DONE(aclrtSynchronizeDeviceWithTimeout) DONE(aclrtSynchronizeStream)
DONE(aclrtSynchronizeStreamWithTimeout)
DONE(rtDevBinaryRegister) DONE(rtFunctionRegister) DONE(rtGetC2cCtrlAddr) DONE(rtKernelLaunch)

unsigned long MsprofGetHashId(void) { return 0; }
unsigned long MsprofSysCycleTime(void) { return 0; }
const char *aclGetRecentErrMsg(void) { return last_error; }
const char *aclrtGetSocName(void) { return "Ascend910B1"; }

/* ------------------------------------------------------------------------------------------------------- devices and memory */
static int context;

int aclrtGetDeviceCount(unsigned *count) { *count = devices(); return OK; }
int aclrtSetDevice(int device) { return device < devices() ? OK : BAD_DEVICE; }
int aclrtGetDevice(int *device) { *device = 0; return OK; }
int aclrtGetCurrentContext(void **found) { *found = &context; return OK; }
int aclrtGetSysParamOpt(int option, long *value) { (void)option; *value = 0; return OK; }
int aclrtCtxGetSysParamOpt(int option, long *value) { (void)option; *value = 0; return OK; }

static int handle(void **made) { *made = malloc(8); return *made ? OK : NO_MEMORY; }
int aclrtCreateStream(void **made) { return handle(made); }
int aclrtCreateStreamWithConfig(void **made) { return handle(made); }
int aclrtCreateEventExWithFlag(void **made) { return handle(made); }

int aclrtMalloc(void **made, size_t size) { *made = aligned_alloc(512, (size + 1023) / 512 * 512); return *made ? OK : NO_MEMORY; }
int aclrtMallocAlign32(void **made, size_t size) { return aclrtMalloc(made, size); }
int aclrtMallocHost(void **made, size_t size) { *made = malloc(size); return *made ? OK : NO_MEMORY; }
int aclrtFree(void *memory) { free(memory); return OK; }
int aclrtFreeHost(void *memory) { free(memory); return OK; }
int aclrtGetMemInfo(int kind, size_t *unused, size_t *total) { (void)kind; *unused = (size_t)8 << 30; *total = (size_t)16 << 30; return OK; }
int aclrtMemset(void *to, size_t most, int value, size_t size) { (void)most; memset(to, value, size); return OK; }
int aclrtMemcpy(void *to, size_t most, const void *from, size_t size) { (void)most; memcpy(to, from, size); return OK; }
int aclrtMemcpyAsync(void *to, size_t most, const void *from, size_t size) { return aclrtMemcpy(to, most, from, size); }

/* ------------------------------------------------------------------------------------------------- what operators are given */
typedef struct { int type, format, rank; int64_t dims[MOST_DIMS]; } Desc;
typedef struct { void *data; size_t size; } Buffer;
typedef struct { int transpose_x1, transpose_x2; } Attr;

Desc *aclCreateTensorDesc(int type, int rank, const int64_t *dims, int format) {
    Desc *made = calloc(1, sizeof *made);
    if (!made || rank > MOST_DIMS) { free(made); return NULL; }
    made->type = type, made->format = format, made->rank = rank;
    memcpy(made->dims, dims, rank * sizeof *dims);
    return made;
}
void aclDestroyTensorDesc(Desc *desc) { free(desc); }
int aclGetTensorDescType(const Desc *desc) { return desc->type; }
int aclGetTensorDescFormat(const Desc *desc) { return desc->format; }
size_t aclGetTensorDescNumDims(const Desc *desc) { return desc->rank; }
int aclGetTensorDescDimV2(const Desc *desc, size_t axis, int64_t *size) { *size = desc->dims[axis]; return OK; }

Buffer *aclCreateDataBuffer(void *data, size_t size) {
    Buffer *made = calloc(1, sizeof *made);
    if (made) made->data = data, made->size = size;
    return made;
}
int aclDestroyDataBuffer(Buffer *buffer) { free(buffer); return OK; }

Attr *aclopCreateAttr(void) { return calloc(1, sizeof(Attr)); }
void aclopDestroyAttr(Attr *attr) { free(attr); }
int aclopSetAttrBool(Attr *attr, const char *name, uint8_t value) {
    if (!strcmp(name, "transpose_x1")) attr->transpose_x1 = value;
    if (!strcmp(name, "transpose_x2")) attr->transpose_x2 = value;
    return OK;
}

/* ---------------------------------------------------------------------------------------------------------------- operators */
static int64_t elements(const Desc *desc) {
    int64_t count = 1;
    for (int i = 0; i < desc->rank; i++) count *= desc->dims[i];
    return count;
}

/* Where element k of a result of shape `to` is found in an operand of shape `from` that is broadcast to it. */
static int64_t broadcast(const Desc *to, const Desc *from, int64_t k) {
    int64_t place = 0, stride = 1;
    for (int i = 1; i <= to->rank; i++) {
        int64_t along = k % to->dims[to->rank - i];
        k /= to->dims[to->rank - i];
        if (i > from->rank) continue;
        if (from->dims[from->rank - i] > 1) place += along * stride;
        stride *= from->dims[from->rank - i];
    }
    return place;
}

/* result [M, N] = x · y (each perhaps transposed) + bias, if there is one */
static int matmul(int inputs, Desc **in, Buffer **data, const Desc *out, float *result, const Attr *attr) {
    const float *x = data[0]->data, *y = data[1]->data, *bias = inputs > 2 ? data[2]->data : NULL;
    int64_t rows = out->dims[0], columns = out->dims[1], inner = in[0]->dims[attr->transpose_x1 ? 0 : 1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            float sum = 0;
            for (int64_t k = 0; k < inner; k++)
                sum += x[attr->transpose_x1 ? k * rows + i : i * inner + k] * y[attr->transpose_x2 ? j * inner + k : k * columns + j];
            result[i * columns + j] = sum + (bias ? bias[broadcast(out, in[2], i * columns + j)] : 0);
        }
    return OK;
}

/* to, its sizes, strides and offset, then the same of from: one view of a tensor is copied into another, element by element */
static int view_copy(int inputs, Desc **in, Buffer **data) {
    if (inputs != 8 || in[0]->type != FLOAT32 || in[4]->type != FLOAT32) return refuse("stand-in for CANN: it copies float32 only");
    for (int i = 0; i < 8; i++)
        if (i % 4 && in[i]->type != INT64) return refuse("stand-in for CANN: sizes are int64");
    float *to = data[0]->data, *from = data[4]->data;
    const int64_t *sizes = data[1]->data, *strides_to = data[2]->data, *strides_from = data[6]->data;
    int64_t start_to = *(int64_t *)data[3]->data, start_from = *(int64_t *)data[7]->data, rank = elements(in[1]), count = 1;
    for (int64_t i = 0; i < rank; i++) count *= sizes[i];
    for (int64_t k = 0; k < count; k++) {
        int64_t rest = k, place_to = start_to, place_from = start_from;
        for (int64_t i = rank - 1; i >= 0; rest /= sizes[i--])
            place_to += rest % sizes[i] * strides_to[i], place_from += rest % sizes[i] * strides_from[i];
        to[place_to] = from[place_from];
    }
    return OK;
}

static float add(float x, float y) { return x + y; }
static float sub(float x, float y) { return x - y; }
static float mul(float x, float y) { return x * y; }
static float quotient(float x, float y) { return x / y; }
static float exponential(float x, float y) { (void)y; return expf(x); }
static float sigmoid(float x, float y) { (void)y; return 1 / (1 + expf(-x)); }
static float swish(float x, float y) { (void)y; return x / (1 + expf(-x)); }

static const struct { const char *name; int operands; float (*value)(float, float); } ELEMENTWISE[] = {
    {"Add", 2, add}, {"Sub", 2, sub}, {"Mul", 2, mul}, {"RealDiv", 2, quotient},
    {"Exp", 1, exponential}, {"Sigmoid", 1, sigmoid}, {"Swish", 1, swish},
};

int aclopCompileAndExecute(const char *name, int inputs, Desc **in, Buffer **data, int outputs, Desc **out, Buffer **results, Attr *attr) {
    if (!strcmp(name, "ViewCopy")) return view_copy(inputs, in, data);
    for (int i = 0; i < inputs; i++)
        if (in[i]->type != FLOAT32 && in[i]->type != UNDEFINED) return refuse("stand-in for CANN: it computes in float32 only");
    if (outputs != 1 || out[0]->type != FLOAT32) return refuse("stand-in for CANN: it gives one float32 tensor only");
    float *result = results[0]->data;
    int64_t count = elements(out[0]);
    if (!strcmp(name, "MatMul") || !strcmp(name, "MatMulV2")) return matmul(inputs, in, data, out[0], result, attr);
    if (!strcmp(name, "ClipByValueV2") && inputs == 3) {
        const float *x = data[0]->data, low = *(float *)data[1]->data, high = *(float *)data[2]->data;
        for (int64_t k = 0; k < count; k++) {
            float value = x[broadcast(out[0], in[0], k)];
            result[k] = value < low ? low : value > high ? high : value; /* NaN stays */
        }
        return OK;
    }
    for (size_t i = 0; i < sizeof ELEMENTWISE / sizeof *ELEMENTWISE; i++)
        if (!strcmp(name, ELEMENTWISE[i].name) && inputs == ELEMENTWISE[i].operands) {
            const float *x = data[0]->data, *y = inputs > 1 ? data[1]->data : NULL;
            for (int64_t k = 0; k < count; k++)
                result[k] = ELEMENTWISE[i].value(x[broadcast(out[0], in[0], k)], y ? y[broadcast(out[0], in[1], k)] : 0);
            return OK;
        }
    fprintf(stderr, "stand-in for CANN: no operator %s with %d operands\n", name, inputs);
    return refuse("stand-in for CANN: it lacks this operator");
}
