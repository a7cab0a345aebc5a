// Modules, and launches of their kernels.

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <dlfcn.h>

#include "run.h"
#include "standin.h"

using namespace standin;

namespace {

struct Module { void *handle; const KernelEntry *kernels; };

sigjmp_buf out_of_kernel;
void touched(int signal) { siglongjmp(out_of_kernel, signal); }

int run_kernel(const KernelEntry *kernel, const Launch &how)
{
    struct sigaction ours = {}, segv, bus;
    ours.sa_handler = touched;
    ours.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &ours, &segv);
    sigaction(SIGBUS, &ours, &bus);
    int code = SUCCESS;
    int signal = sigsetjmp(out_of_kernel, 1);
    if (signal == SIGBUS) {
        code = fail(MISALIGNED, std::string(kernel->name) + ": touched memory at an address that is not aligned");
    } else if (signal) {
        code = fail(ILLEGAL_ADDRESS, std::string(kernel->name) + ": touched memory that is not allocated");
    } else if (const char *wrong = kernel->launch(how)) {
        code = fail(LAUNCH_FAILED, std::string(kernel->name) + ": " + wrong);
    }
    sigaction(SIGSEGV, &segv, nullptr);
    sigaction(SIGBUS, &bus, nullptr);
    return code ? code : check_ends();
}

int load_module(void **module, const void *image)
{
    char path[4096];
    if (!state.translate || state.translate(static_cast<const char *>(image), path, sizeof path))
        return fail(INVALID_PTX, "the PTX was not translated");
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return fail(INVALID_IMAGE, dlerror());
    *module = new Module{handle, static_cast<const KernelEntry *>(dlsym(handle, "kernel_entries"))};
    return SUCCESS;
}

} // namespace

API int cuModuleLoadData(void **module, const void *image) { return load_module(module, image); }
API int cuModuleLoadDataEx(void **module, const void *image, unsigned, int *, void **) { return load_module(module, image); }

API int cuModuleUnload(Module *module)
{
    dlclose(module->handle);
    delete module;
    return SUCCESS;
}

API int cuModuleGetFunction(const void **function, Module *module, const char *name)
{
    IN_CONTEXT
    for (const KernelEntry *kernel = module->kernels; kernel->name; kernel++)
        if (!strcmp(kernel->name, name)) {
            *function = kernel;
            return SUCCESS;
        }
    return fail(NOT_FOUND, std::string("no kernel ") + name);
}

API int cuFuncGetAttribute(int *value, int attribute, void *)
{
    *value = attribute ? 0 : 1024;
    return SUCCESS;
}

API int cuFuncSetBlockShape(void *, int, int, int) { return SUCCESS; }
API int cuFuncSetCacheConfig(void *, int) { return SUCCESS; }
API int cuFuncSetAttribute(void *, int, int) { return SUCCESS; }

API int cuLaunchKernel(const KernelEntry *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned, Stream *stream, void **, void **extra)
{
    IN_CONTEXT
    TRY(injected("launch"))
    std::string name = kernel->name;
    if (!gx || !gy || !gz || !bx || !by || !bz || gx > 0x7fffffff || gy > 65535 || gz > 65535 || bx * by * bz > 1024)
        return fail(INVALID_VALUE, name + ": a grid or block that no device takes");
    const void *arguments = nullptr;
    size_t bytes = 0;
    for (void **entry = extra; entry && *entry; entry += 2) {
        if (Pointer(*entry) == 1)
            arguments = entry[1];
        else if (Pointer(*entry) == 2)
            bytes = *static_cast<size_t *>(entry[1]);
    }
    if (bytes != kernel->parameter_bytes)
        return fail(INVALID_VALUE, name + ": was given " + std::to_string(bytes) + " bytes of arguments and takes " +
                                       std::to_string(kernel->parameter_bytes));
    std::string held(static_cast<const char *>(arguments), bytes);
    state.counters["launches"] += 1;
    state.counters["threads"] += uint64_t(gx) * gy * gz * bx * by * bz;
    uint64_t seed = state.seed + state.counters["launches"];
    int broken = injected("kernel");
    return submit(stream, [=] {
        unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
        return broken ? broken : run_kernel(kernel, Launch{grid, block, held.data(), state.order, seed});
    });
}
