/* Compares what two builds of the driver export: argv[1] is the one before CUDA 11.3, argv[2]
 * the current one. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda_abi.h"

static const struct {
    const char *symbol;
    int since;
} functions[] = {
#define CU_FN(symbol, name, since, mode, params, args) {#symbol, since},
#include "device/cuda_functions.def"
#undef CU_FN
};

int main(int argc, char **argv) {
    int bad = 0, version = 0;
    void *old = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void *now = argc == 3 ? dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW) : NULL;
    if (!old || !now) {
        fprintf(stderr, "%s\n", argc == 3 ? dlerror() : "two libraries are needed");
        return 1;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (!dlsym(now, functions[i].symbol) ||
            !dlsym(old, functions[i].symbol) != (functions[i].since >= 11030)) {
            fprintf(stderr, "%s (%d) is wrong\n", functions[i].symbol, functions[i].since);
            bad = 1;
        }
    }
    cuDriverGetVersion_fn *get_version;
    void *found = dlsym(old, "cuDriverGetVersion");
    memcpy(&get_version, &found, sizeof get_version);
    if (!get_version || get_version(&version) || version != 11020) {
        fprintf(stderr, "the old driver says it is %d\n", version);
        bad = 1;
    }
    return bad;
}
